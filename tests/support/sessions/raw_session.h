// A client that lies: it attaches by the real control messages and then owns its rings without the
// library's manners. Thread: one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "proto/ring/layout.h"
#include "proto/ring/segment.h"
#include "proto/status.h"
#include "proto/types.h"
#include "proto/unique_fd.h"
#include "tests/support/processes/client_process.h"
#include "tests/support/processes/daemon_process.h"

namespace arcomm::support {

class RawSession {
 public:
  struct Options {
    std::uint32_t ring_abi_major = kRingAbiMajor;
    std::uint32_t ring_abi_minor = kRingAbiMinor;
    std::string device;
    std::string process_name = "raw session";
  };
  // Every step of attaching is a real call; an Error is what the daemon answered.
  static Result<std::unique_ptr<RawSession>> attach(const std::string& runtime_dir,
                                                    Options options);
  static Result<std::unique_ptr<RawSession>> attach(const DaemonProcess& daemon, Options options) {
    return attach(daemon.runtime_dir(), std::move(options));
  }
  static Result<std::unique_ptr<RawSession>> attach(const DaemonProcess& daemon) {
    return attach(daemon, Options());
  }
  ~RawSession();

  // Rank 0 of two that never come together, with so many empty names of GPUs.
  Status join_with_gpus(std::size_t gpus);
  // Memory in so many empty pieces; and offers of so many descriptors that are let go.
  Status register_pieces(std::size_t pieces);
  Status release_offers(std::size_t offers);
  // A communicator of one rank, so that nobody else is needed for its operations.
  Result<MemberId> create_lone_communicator();
  Result<MemberId> create_communicator(const std::string& unique_id, Rank rank, int ranks,
                                       milliseconds timeout);
  // As a rank whose calls may meet with others' (proto/host/in_call.h): with the memory for that,
  // where the daemon gives any.
  struct InCallSeat {
    MemberId member;
    void* memory = nullptr;
    std::uint64_t bytes = 0;
  };
  Result<InCallSeat> join_in_call(const std::string& unique_id, Rank rank, int ranks,
                                  milliseconds timeout);
  // Rank 0 of two; the well-behaved `peer`, attached already, is rank 1 of it as "c0".
  Result<MemberId> create_communicator_with(ClientProcess& peer);
  struct Buffer {
    BufferId id;
    void* base = nullptr;
    std::uint64_t bytes = 0;
  };
  Result<Buffer> allocate(std::uint64_t bytes);
  // The call has so long; nobody fetches what it gives.
  Status allocate_unfetched(std::uint64_t bytes, milliseconds patience);
  // Offers `memory` (kept by the caller) and registers [offset, offset + bytes) of it.
  // call: its number; 0: none.
  Result<Buffer> register_memory(int memory, std::uint64_t offset, std::uint64_t bytes,
                                 std::uint64_t call = 0);
  // Whatever the call of that number has given, or gives yet.
  Status take_back(std::uint64_t call);
  Status release(BufferId buffer);
  // A plan of so many elements in place.
  Status create_plan(MemberId member, BufferId buffer, std::uint64_t count);
  Status abort(MemberId member, const std::string& why);

  // The rings, raw.
  ring::ControlLines& control();
  ring::WorkRequest* request_slots();
  ring::Completion* completion_slots();
  std::uint32_t slots() const;
  int segment_fd() const;
  // Writes `slot` at the next position as a well-behaved producer would, and wakes the daemon.
  ring::Push submit(const ring::WorkRequest& slot);
  // Stores `stamp` where the daemon looks for the next request.
  void stamp_next_slot(std::uint64_t stamp);
  void ring_doorbell();
  // The next completion as a well-behaved consumer takes it.
  std::optional<ring::Completion> next_completion(milliseconds deadline);
  // Waits until the daemon has changed the session's state away from Open; returns it.
  ring::SessionState wait_state(milliseconds deadline);
  Reason state_reason();

  std::uint64_t session_bits() const;
  std::uint64_t segment_limit_bytes() const;
  // Where the next well-behaved request goes.
  std::uint64_t position() const;

 private:
  struct Parts;
  explicit RawSession(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// GetStatus over any socket: what the daemon answers, Ok included.
Error admin_status_over(const std::string& socket);
// An Attach whose message has `bytes` bytes.
Error oversized_attach(const std::string& runtime_dir, std::size_t bytes);
inline Error oversized_attach(const DaemonProcess& daemon, std::size_t bytes) {
  return oversized_attach(daemon.runtime_dir(), bytes);
}

// A valid AllReduce over one buffer in place, to be spoiled by the test.
ring::WorkRequest valid_request(MemberId member, std::uint64_t seq, BufferId buffer,
                                std::uint64_t count);

}  // namespace arcomm::support

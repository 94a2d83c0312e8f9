// The thread that owns one device: its sessions' rings, its communicators, its executor. Everything
// that touches an operation happens on it; other threads talk to it by message and hear back
// through `done`.
//
// Thread: run() is the worker's own; every other public function may be called from any thread,
// posts a message and returns at once. `done` is called exactly once, on the worker thread (or on
// the caller's, with Unavailable, when the worker has stopped); it must not block and must not call
// back into the worker synchronously.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "daemon/comm/unique_id.h"
#include "proto/in_stream_call.h"
#include "proto/launch_table.h"
#include "proto/memory_handle.h"
#include "proto/ring/segment.h"
#include "proto/status.h"
#include "proto/types.h"
#include "proto/unique_fd.h"

namespace arcomm {

class Device;
class FlightRecorder;
class Metrics;
enum class CudaAlgorithm : std::uint8_t;
struct GpuHardware;
struct TuningTable;

// As the kernel told them when the connection was accepted; pid 0 where the client lives in a PID
// namespace that the daemon cannot see.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

struct SessionLimits {
  std::uint32_t max_in_flight = 128;  // operations; never above the ring's slots
};

struct SessionSpec {
  SessionId id;
  PeerCredentials peer;
  std::string process_name;
  ring::Segment segment;
  UniqueFd doorbell;  // the eventfd whose other copy the client holds
  SessionLimits limits;
};

struct RankSpec {
  SessionId session;
  Rank rank = 0;
  std::string device = {};                     // GPU workers: "GPU-<uuid>"
  std::vector<std::string> visible_gpus = {};  // to the rank's process
  // What keeps the rank's process from in-stream operations, and its communicators with it.
  std::uint32_t in_stream_abi = kInStreamAbi;
  InStreamHindrance in_stream_hindrance = InStreamHindrance::None;
};

struct CommunicatorSpec {
  UniqueIdBytes unique_id{};
  std::uint64_t epoch = 1;
  std::vector<RankSpec> ranks;  // complete and sorted by rank
};

// Memory that a session may name in its requests. The descriptor is mapped by the worker and then
// closed.
struct BufferSpec {
  UniqueFd memory;  // memfd sealed against shrinking; GPU workers: an exported allocation, or none
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
  // GPU workers only.
  std::string device = {};                               // where it lives: "GPU-<uuid>"
  std::optional<std::array<std::byte, 64>> handle = {};  // cudaIpcMemHandle_t, not `memory`
  std::vector<MemoryChunk> chunks = {};                  // or these, one behind the other
  std::uint64_t allocation_bytes = 0;  // of the allocation that the offset counts in
};

// GPU workers: memory that the worker allocated, for the client to map.
struct AllocatedBuffer {
  BufferId buffer;
  UniqueFd memory;
  std::uint64_t length_bytes = 0;  // whole granules of the device
};

// GPU workers: a rank's proto/device_mailbox.h, and what it needs for in-stream operations where
// they are to be had, for the client to map. In the order of CreateCommunicatorReply.
struct MailboxDescriptors {
  std::vector<UniqueFd> descriptors;
  std::uint64_t mailbox_bytes = 0;
  std::uint64_t exchange_bytes = 0;  // 0: no in-stream operations
  LaunchTable launches;              // the same for all ranks
};

// GPU workers: what one measurement of `arctl tune` asks.
struct GpuMeasurement {
  std::optional<CudaAlgorithm> algorithm;  // none: an in-stream operation, as clients launch it
  std::uint64_t bytes = 0;                 // of one rank
};

struct PlanSpec {
  MemberId member;
  BufferId send_buffer, recv_buffer;
  std::uint64_t send_offset_bytes = 0, recv_offset_bytes = 0;
  std::uint64_t count = 0;
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  Codec codec = Codec::None;
  std::uint64_t timeout_ns = 0;
};

// Values for people: what `arctl status|sessions|comms` print.
struct SessionSnapshot {
  SessionId id;
  PeerCredentials peer;
  std::string process_name, state;
  std::uint64_t communicators = 0, buffers = 0, registered_bytes = 0, in_flight = 0;
  std::uint64_t submitted = 0, completed = 0, failed = 0, rejected = 0, age_ms = 0;
};
struct RankSnapshot {
  Rank rank = 0;
  SessionId session;
  pid_t pid = 0;
  std::uint64_t next_seq = 0;  // operations seen from this rank
  std::string waiting;         // "" or "seq 7 since 120 ms"
};
struct CommunicatorSnapshot {
  UniqueIdBytes unique_id{};
  std::uint64_t epoch = 0;
  std::string state;  // "ready" or "revoked: <why>"
  Reason reason = Reason::None;
  Rank culprit = kNoRank;
  std::uint64_t operations_done = 0, operations_failed = 0;
  std::vector<RankSnapshot> ranks;
  std::string diagnosis;
  // On GPUs: the table in use, and why not more of it is in-stream; "" where nothing hinders.
  std::optional<LaunchTable> launches = std::nullopt;
  std::string why_not_in_stream = {};
};
struct WorkerSnapshot {
  std::string device, state;
  std::uint64_t operations_done = 0, operations_failed = 0, bytes_reduced = 0,
                operations_pending = 0;
  double busy_fraction = 0;
  std::vector<SessionSnapshot> sessions;
  std::vector<CommunicatorSnapshot> communicators;
};

// What the worker tells the control plane, on the worker thread.
struct WorkerEvents {
  // The session broke the ring protocol or its process died; control forgets it and gives its quota
  // back.
  std::function<void(SessionId, Reason, std::string why)> session_lost;
  // A communicator left the ready state; a rebuild under the same unique id may start.
  std::function<void(const UniqueIdBytes&, std::uint64_t epoch, Reason)> communicator_revoked;
};

class DeviceWorker {
 public:
  template <typename T>
  using Done = std::function<void(Result<T>)>;

  struct Parts {
    Device& device;
    std::vector<Device*> gpus = {};  // those it serves, `device` first; empty: a host worker
    FlightRecorder& recorder;
    Metrics& metrics;
    std::shared_ptr<const Settings> settings;
    std::shared_ptr<const TuningTable> tuning;
    WorkerEvents events;
    // How `gpus` are opened; empty: as this build does it.
    std::function<Result<GpuHardware>(Device&)> open_gpu = nullptr;
  };

  static Result<std::unique_ptr<DeviceWorker>> create(Parts parts);
  virtual ~DeviceWorker() = default;

  virtual void run() = 0;   // until stop(); called once, on the thread that becomes the owner
  virtual void stop() = 0;  // fails what is open and makes run() return

  virtual void open_session(SessionSpec seed, Done<void> done) = 0;
  // Revokes the session's communicators (its peers hear `reason` and its rank), unmaps its memory,
  // closes its rings. done: everything is released.
  virtual void close_session(SessionId session, Reason reason, std::string why,
                             Done<void> done) = 0;

  virtual void add_buffer(SessionId session, BufferSpec seed, Done<BufferId> done) = 0;
  // GPU workers; Unimplemented on others. device: "" for the worker's first.
  virtual void allocate_buffer(SessionId session, std::string device, std::uint64_t bytes,
                               Done<AllocatedBuffer> done) = 0;
  // Refused with FailedPrecondition while an operation in flight uses it.
  virtual void remove_buffer(SessionId session, BufferId buffer, Done<void> done) = 0;
  virtual void add_plan(SessionId session, PlanSpec seed, Done<PlanId> done) = 0;
  virtual void remove_plan(SessionId session, PlanId plan, Done<void> done) = 0;

  // done: one MemberId per rank, in rank order.
  virtual void form_communicator(CommunicatorSpec seed, Done<std::vector<MemberId>> done) = 0;
  // Both: done once no operation of the member can touch memory any more, so that the caller may
  // use his own again. A rank that leaves ends what others have not called yet; what all had called
  // runs first.
  virtual void abort_communicator(SessionId session, MemberId member, std::string why,
                                  Done<void> done) = 0;
  virtual void leave_communicator(SessionId session, MemberId member, Done<void> done) = 0;
  virtual void describe(SessionId session, MemberId member, Done<CommunicatorSnapshot> done) = 0;
  // GPU workers; Unimplemented on others.
  virtual void export_mailbox(SessionId session, MemberId member,
                              Done<MailboxDescriptors> done) = 0;
  virtual bool on_gpus() const = 0;

  // GPU workers; Unimplemented on others. Measures kernels between the worker's first `ranks` GPUs,
  // on memory of its own, which it keeps until end_measuring(). All of them are refused with
  // FailedPrecondition while a communicator exists, and the memory goes then: clients come first,
  // but for the one measurement that runs when they come. done of begin: the largest operation that
  // there is memory for, at most room_bytes; of measure: microseconds. After any other error of
  // measure() than OutOfRange it takes another begin.
  virtual void begin_measuring(std::uint32_t ranks, std::uint64_t room_bytes,
                               Done<std::uint64_t> done) = 0;
  virtual void measure(GpuMeasurement what, Done<double> done) = 0;
  virtual void end_measuring(Done<void> done) = 0;

  virtual void inspect(Done<WorkerSnapshot> done) = 0;
  virtual void use_settings(std::shared_ptr<const Settings> settings) = 0;
  virtual void use_tuning(std::shared_ptr<const TuningTable> tuning) = 0;
  // No new operations from now on (they are refused with ShuttingDown); done when none is in flight
  // or at the deadline, after which what is left has been failed.
  virtual void drain(std::chrono::nanoseconds deadline, Done<void> done) = 0;
  // Grows with every turn of run(); a watchdog that sees it stand still while work is pending stops
  // the pings.
  virtual std::uint64_t progress() const = 0;
};

}  // namespace arcomm

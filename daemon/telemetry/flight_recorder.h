// The last N operations of one worker, always on, in a memfd: what happened, for whom, and when at
// each step. Thread: write() belongs to one thread (the worker that owns the recorder's device);
// all reading functions may run on any thread, or in another process over memfd(), while it writes:
// each record is a seqlock of atomic words, and a reader skips a record that changes under it.
// Times are CLOCK_MONOTONIC nanoseconds; 0 means that the step was not reached.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "proto/shared_mapping.h"
#include "proto/status.h"
#include "proto/types.h"
#include "proto/unique_fd.h"

namespace arcomm {

inline constexpr std::uint8_t kNoAlgorithm = 255;  // nothing ran

struct FlightRecord {
  std::uint64_t number = 0;  // 1, 2, 3, ... in the order of first write; 0: not written yet
  std::uint64_t unique_id_prefix =
      0;  // the first 8 bytes of the communicator's unique id, as stored
  std::uint64_t epoch = 0;
  std::uint64_t seq = 0;
  std::uint64_t send_count = 0;  // elements
  std::uint64_t recv_count = 0;
  std::uint64_t submitted_ns = 0;  // by the client, as its request says
  std::uint64_t admitted_ns = 0;
  std::uint64_t matched_ns = 0;  // all ranks had arrived with the same signature
  std::uint64_t agreed_ns = 0;   // all nodes had; 0 on one node
  std::uint64_t launched_ns = 0;
  std::uint64_t done_ns = 0;
  std::int32_t rank = kNoRank;
  std::int32_t culprit = kNoRank;
  std::int32_t pid = 0;
  Collective collective = Collective::AllReduce;
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  Codec codec = Codec::None;
  std::uint8_t algorithm = kNoAlgorithm;  // as daemon/plan/recorded_algorithm.h numbers them
  ErrorCode code = ErrorCode::Unknown;    // Unknown with done_ns 0: still open
  Reason reason = Reason::None;
};

class FlightRecorder {
 public:
  // `records` is rounded up to a power of two.
  static Result<std::unique_ptr<FlightRecorder>> create(std::size_t records);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // The first write of a record gives it its number; later ones bring it up to date, or do nothing
  // when the ring has moved past it. No lock, no allocation, no system call.
  void write(FlightRecord& record);

  std::size_t capacity() const { return records_; }
  std::uint64_t written() const;  // records numbered so far
  int memfd() const { return memory_.get(); }

  // The newest `limit` records that are complete, oldest first. 0: all.
  std::vector<FlightRecord> snapshot(std::size_t limit = 0) const;
  // What another process recorded, over a copy of its memfd(), in whatever state that left it.
  // FailedPrecondition where it is no flight recorder of this version.
  static Result<std::vector<FlightRecord>> read(int memfd);
  // JSON lines: one object per record, preceded by one that names process, clock and capacity.
  void dump(std::ostream& out) const;
  // dump() into <directory>/flight-<pid>-<n>.jsonl, n counting from 1 in this process; the file's
  // path.
  Result<std::string> dump_to(const std::string& directory) const;

  struct Slot;  // the layout in the memfd, in flight_recorder.cc

 private:
  FlightRecorder(UniqueFd memory, SharedMapping mapping, std::size_t records);

  UniqueFd memory_;
  SharedMapping mapping_;
  std::size_t records_ = 0;
  std::uint64_t next_ = 1;  // the writer's own
};

// {"number":1,"comm":"...","seq":0,...}
std::string to_json(const FlightRecord& record);

}  // namespace arcomm

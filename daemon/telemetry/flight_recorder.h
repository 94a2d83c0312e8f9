// The last N operations of one worker, always on, in a memfd: what happened, for whom, and when at
// each step; beside them, where it speaks to other nodes, what the last operations that span nodes
// did there. Thread: write() belongs to one thread (the worker that owns the recorder's device);
// all reading functions may run on any thread, or in another process over memfd(), while it writes.
// Times are CLOCK_MONOTONIC nanoseconds; 0 means that the step was not reached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "daemon/telemetry/network_steps.h"
#include "daemon/telemetry/record_ring.h"
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
  CodecOrigin codec_origin = CodecOrigin::Named;
  std::uint8_t algorithm = kNoAlgorithm;  // as daemon/plan/recorded_algorithm.h numbers them
  ErrorCode code = ErrorCode::Unknown;    // Unknown with done_ns 0: still open
  Reason reason = Reason::None;
};

// What a recorder holds, oldest first.
struct FlightLog {
  std::vector<FlightRecord> operations;  // one for each rank
  std::vector<NetworkSteps> network;     // one for each operation that spans nodes

  void append(const FlightLog& log) {
    operations.insert(operations.end(), log.operations.begin(), log.operations.end());
    network.insert(network.end(), log.network.begin(), log.network.end());
  }
};

class FlightRecorder {
 public:
  // Both are rounded up to a power of two. network_records 0: it never spans nodes, and steps
  // between them are not kept.
  static Result<std::unique_ptr<FlightRecorder>> create(std::size_t records,
                                                        std::size_t network_records = 0);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // The first write of a record gives it its number; later ones bring it up to date, or do nothing
  // when the ring has moved past it. No lock, no allocation, no system call.
  void write(FlightRecord& record) { operations_.write(record); }
  void write(NetworkSteps& steps) { network_.write(steps); }

  std::size_t capacity() const { return operations_.capacity(); }
  std::uint64_t written() const { return operations_.written(); }  // records numbered so far
  int memfd() const { return memory_.get(); }

  // The newest `limit` records that are complete, oldest first. 0: all.
  std::vector<FlightRecord> snapshot(std::size_t limit = 0) const {
    return operations_.collect(limit);
  }
  std::vector<NetworkSteps> network_steps() const { return network_.collect(0); }
  FlightLog log() const { return {snapshot(), network_steps()}; }
  // What another process recorded, over a copy of its memfd(), in whatever state that left it.
  // FailedPrecondition where it is no flight recorder of this version.
  static Result<FlightLog> read(int memfd);
  // JSON lines: one object per record, preceded by one that names process, clock and capacity. That
  // of an operation that spans nodes has its steps there as "network".
  void dump(std::ostream& out) const;
  // dump() into <directory>/flight-<pid>-<n>.jsonl, n counting from 1 in this process; the file's
  // path.
  Result<std::string> dump_to(const std::string& directory) const;

 private:
  struct Header;  // the layout in the memfd, in flight_recorder.cc
  FlightRecorder(UniqueFd memory, SharedMapping mapping);
  static RecordRing<FlightRecord> operations_in(std::byte* base);
  static RecordRing<NetworkSteps> network_in(std::byte* base);

  UniqueFd memory_;
  SharedMapping mapping_;
  RecordRing<FlightRecord> operations_;
  RecordRing<NetworkSteps> network_;
};

// {"number":1,"comm":"...","seq":0,...}; `network` may be null.
std::string to_json(const FlightRecord& record, const NetworkSteps* network = nullptr);

}  // namespace arcomm

// What of one operation has gone between nodes, as this node saw it: one record for all its ranks
// here, beside theirs. Times are CLOCK_MONOTONIC nanoseconds of this node; 0: not reached. Values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace arcomm {

struct NetworkSteps {
  std::uint64_t number = 0;  // see RecordRing
  // Which operation: as in its FlightRecords.
  std::uint64_t unique_id_prefix = 0;
  std::uint64_t epoch = 0;
  std::uint64_t seq = 0;
  // The first payload was given to a stream, or went with the offer.
  std::uint64_t posted_ns = 0;
  // The worker has seen that all of them had left: up to a turn of its loop after the last did. 0
  // where they went with the offer.
  std::uint64_t sent_ns = 0;
  // The last chunk of others was there, and taken: the nodes' agreement where it came with offers.
  std::uint64_t arrived_ns = 0;
  // The last time that a peer was told that its slots are free: some may be told of with a later
  // operation, and none where nothing came into slots.
  std::uint64_t credited_ns = 0;
  std::uint64_t sent_bytes = 0, received_bytes = 0;  // of payloads, to and from all nodes
  std::uint32_t nodes = 0;
  std::uint8_t algorithm = 0;  // as FlightRecord's
};

// By operation: the newest where there are several.
class NetworkStepsIndex {
 public:
  explicit NetworkStepsIndex(const std::vector<NetworkSteps>& steps) {
    for (const NetworkSteps& one : steps)
      by_operation_[{one.unique_id_prefix, one.epoch, one.seq}] = &one;
  }
  // Null: it stayed on one node, or its steps are not kept. `Record`: a FlightRecord.
  template <typename Record>
  const NetworkSteps* find(const Record& record) const {
    const auto found = by_operation_.find({record.unique_id_prefix, record.epoch, record.seq});
    return found == by_operation_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>, const NetworkSteps*>
      by_operation_;
};

// {"nodes":2,"posted_ns":...}
std::string to_json(const NetworkSteps& steps);

}  // namespace arcomm

// What of a communicator's running operation has gone between nodes, noted for the flight recorder
// as it happens: a clock's reading for each chunk, and nothing for what stays on a node. Thread:
// the worker's.
#pragma once

#include <cstdint>
#include <utility>

#include "daemon/comm/communicator.h"
#include "daemon/exec/clock.h"
#include "daemon/telemetry/flight_recorder.h"

namespace arcomm {

class StepNotes {
 public:
  // Of the operation before nothing is left.
  void begin(const Communicator& communicator, const Arrival& arrival, std::uint8_t algorithm) {
    steps_ = {.unique_id_prefix = prefix_of(communicator.unique_id),
              .epoch = communicator.epoch,
              .seq = arrival.seq,
              .nodes = communicator.world.nodes(),
              .algorithm = algorithm};
    agreed_ns_ = arrival.agreed_ns;
    is_out_ = false;
    is_changed_ = true;
  }
  // This node's data went with its offer, to all nodes together so many bytes.
  void offered(std::uint64_t at_ns, std::uint64_t bytes) {
    steps_.posted_ns = at_ns;
    steps_.sent_bytes += bytes;
  }
  // A node's came with its offer.
  void came_with_offer(std::uint64_t bytes) {
    steps_.arrived_ns = agreed_ns_;
    steps_.received_bytes += bytes;
  }

  void posted(std::uint64_t bytes) {
    if (steps_.posted_ns == 0) steps_.posted_ns = now_ns();
    steps_.sent_bytes += bytes;
    is_out_ = is_changed_ = true;
  }
  void arrived(std::uint64_t bytes) {
    steps_.arrived_ns = now_ns();
    steps_.received_bytes += bytes;
    is_changed_ = true;
  }
  void credited() {
    steps_.credited_ns = now_ns();
    is_changed_ = true;
  }
  // Payloads were posted, and all_back() has not been called since.
  bool is_out() const { return is_out_; }
  void all_back() {
    if (!std::exchange(is_out_, false)) return;
    steps_.sent_ns = now_ns();
    is_changed_ = true;
  }

  // Where there is news.
  void write(FlightRecorder& recorder) {
    if (std::exchange(is_changed_, false)) recorder.write(steps_);
  }

 private:
  NetworkSteps steps_;
  std::uint64_t agreed_ns_ = 0;
  bool is_out_ = false, is_changed_ = false;
};

}  // namespace arcomm

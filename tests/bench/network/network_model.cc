#include "tests/bench/network/network_model.h"

#include <algorithm>
#include <vector>

#include "daemon/plan/network/network_shards.h"
#include "daemon/plan/network/ring_schedule.h"

namespace arcomm::bench {
namespace {

// Of exchange and direct: an eighth of what goes to one node, within what a slot holds.
double chunk_of_piece(std::uint64_t bytes, const NetworkCosts& costs) {
  const auto whole = static_cast<double>(bytes), window = static_cast<double>(costs.window_bytes);
  return std::min(whole, std::clamp(whole / 8, std::min(16384.0, window / 8), window / 8));
}

// When the first chunk of something is there, and when all of it is.
struct Ready {
  double head = 0, tail = 0;
};

// All nodes' links.
class Network {
 public:
  Network(std::uint32_t nodes, const NetworkCosts& costs, double chunk_bytes, double window_bytes)
      : costs_(costs),
        us_per_byte_(1e-3 / costs.gigabytes),
        chunk_bytes_(chunk_bytes),
        // What a link may have under way is replaced no faster than a round trip takes.
        us_per_byte_of_pair_(std::max(us_per_byte_, 2 * costs.latency_us / window_bytes)),
        sends_(nodes, 0),
        gets_(nodes, 0) {}

  // Calls must come in the order in which messages are sent by each node and get to each.
  Ready carry(std::uint32_t from, std::uint32_t to, std::uint64_t bytes, Ready ready) {
    if (bytes == 0) return ready;
    const double all = static_cast<double>(bytes);
    const double chunk = std::min(all, chunk_bytes_);
    const double begins = std::max(ready.head, sends_[from]);
    // The last chunk leaves when it is there and the others have left.
    const double sent = std::max(begins + costs_.message_us + all * us_per_byte_,
                                 ready.tail + costs_.message_us + chunk * us_per_byte_);
    sends_[from] = sent;
    const double arrives = std::max(begins + costs_.message_us + costs_.latency_us, gets_[to]);
    Ready there;
    there.head = arrives + chunk * us_per_byte_of_pair_ + costs_.message_us;
    there.tail = std::max({arrives + all * us_per_byte_of_pair_, sent + costs_.latency_us}) +
                 costs_.message_us;
    // Others use the link while this pair waits for room in its window.
    gets_[to] = arrives + all * us_per_byte_;
    return there;
  }

  // Combines `inputs` arrays of so many bytes, chunk by chunk as they come.
  Ready combine(Ready ready, std::uint64_t bytes, std::uint32_t inputs) const {
    const double us_per_byte = 1e-3 / costs_.combine_gigabytes * inputs;
    const double all = static_cast<double>(bytes), chunk = std::min(all, chunk_bytes_);
    const double head = ready.head + chunk * us_per_byte;
    return {head, std::max(ready.tail + chunk * us_per_byte, ready.head + all * us_per_byte)};
  }

 private:
  NetworkCosts costs_;
  double us_per_byte_, chunk_bytes_, us_per_byte_of_pair_;
  std::vector<double> sends_, gets_;  // until when each node's link is taken
};

// Calls carry(from, to) for all pairs, in the order in which they are sent.
template <typename Carry>
void all_to_all(std::uint32_t nodes, bool staggered, Carry carry) {
  for (std::uint32_t turn = 0; turn < nodes; ++turn) {
    for (std::uint32_t from = 0; from < nodes; ++from) {
      const std::uint32_t to = staggered ? (from + turn) % nodes : turn;
      if (to != from) carry(from, to);
    }
  }
}

// What all nodes send to each, when the first chunk of everybody's is there, and when all is.
template <typename BytesTo>
std::vector<Ready> gather(Network& network, const NetworkQuestion& question, double chunk_bytes,
                          const NetworkCosts& costs, BytesTo bytes_to) {
  std::vector<Ready> came(question.nodes);
  all_to_all(question.nodes, costs.staggered, [&](std::uint32_t from, std::uint32_t to) {
    const Ready there = network.carry(from, to, bytes_to(to), {});
    came[to].head = std::max(came[to].head, there.head);
    came[to].tail = std::max(came[to].tail, there.tail);
  });
  if (costs.staggered) {  // chunks of all nodes come in turn
    for (Ready& ready : came) {
      ready.head =
          std::min(ready.head, costs.latency_us +
                                   (question.nodes - 1) *
                                       (costs.message_us + chunk_bytes * 1e-3 / costs.gigabytes));
    }
  }
  return came;
}

double exchange(const NetworkQuestion& question, std::uint64_t partial_bytes,
                const NetworkCosts& costs) {
  const std::uint64_t bytes = question.count * partial_bytes;
  const double chunk = chunk_of_piece(bytes, costs);
  Network network(question.nodes, costs, chunk, static_cast<double>(costs.window_bytes));
  const std::vector<Ready> came =
      gather(network, question, chunk, costs, [&](std::uint32_t) { return bytes; });
  double last = 0;
  for (const Ready& ready : came)
    last = std::max(last, network.combine(ready, bytes, question.nodes).tail);
  return last;
}

double direct(const NetworkQuestion& question, std::uint64_t partial_bytes,
              const NetworkCosts& costs) {
  const NetworkShards shards(question);
  const double chunk = chunk_of_piece(shards.most_elements() * partial_bytes, costs);
  Network network(question.nodes, costs, chunk, static_cast<double>(costs.window_bytes));
  std::vector<Ready> came = gather(network, question, chunk, costs, [&](std::uint32_t to) {
    return shards.of(to).size() * partial_bytes;
  });
  double last = 0;
  for (std::uint32_t owner = 0; owner < question.nodes; ++owner) {
    came[owner] =
        network.combine(came[owner], shards.of(owner).size() * partial_bytes, question.nodes);
    last = std::max(last, came[owner].tail);
  }
  all_to_all(question.nodes, costs.staggered, [&](std::uint32_t from, std::uint32_t to) {
    const std::uint64_t bytes = shards.of(from).size() * size_of(question.dtype);
    if (bytes != 0) last = std::max(last, network.carry(from, to, bytes, came[from]).tail);
  });
  return last;
}

double ring(const NetworkQuestion& question, std::uint64_t partial_bytes, const RingShape& shape,
            const NetworkCosts& costs) {
  Network network(question.nodes, costs, static_cast<double>(shape.chunk_bytes),
                  static_cast<double>(shape.in_flight_bytes()));
  const NetworkShards shards(question);
  const std::uint32_t nodes = question.nodes;
  const std::uint32_t steps = RingSchedule(nodes, 0, shape.bidirectional).steps();
  // What each node sends next, either way; a node's own is there from the beginning.
  struct Both {
    Ready right, left;
  };
  std::vector<Both> held(nodes), next(nodes);
  double last = 0;
  for (std::uint32_t index = 0; index < steps; ++index) {
    for (const bool leftwards : {false, true}) {
      for (std::uint32_t node = 0; node < nodes; ++node) {
        const RingStep step = RingSchedule(nodes, node, shape.bidirectional).step(index);
        const RingSend& out = leftwards ? step.left : step.right;
        if (!out.used) continue;
        const bool gathers = step.phase == RingPhase::AllGather;
        const std::uint64_t bytes =
            shards.of(out.shard).size() * (gathers ? size_of(question.dtype) : partial_bytes);
        Ready& there = leftwards ? next[out.to].left : next[out.to].right;
        there = network.carry(node, out.to, bytes, leftwards ? held[node].left : held[node].right);
        if (!gathers) there = network.combine(there, bytes, 2);
        if (bytes != 0) last = std::max(last, there.tail);
      }
    }
    // The owner sends its result both ways.
    if (RingSchedule(nodes, 0, shape.bidirectional).reduce_steps() == index + 1) {
      for (Both& both : next) both.left = both.right;
    }
    held = next;
  }
  return last;
}

}  // namespace

double simulate(const NetworkQuestion& question, const NetworkChoice& choice,
                const RingShape& shape, const NetworkCosts& costs) {
  if (question.nodes <= 1) return 0;
  const std::uint64_t partial_bytes = size_of(choice.partials);
  switch (choice.algorithm) {
    case NetworkAlgorithm::Exchange:
      return exchange(question, partial_bytes, costs);
    case NetworkAlgorithm::Direct:
      return direct(question, partial_bytes, costs);
    case NetworkAlgorithm::Ring:
      return ring(question, partial_bytes, shape, costs);
  }
  return 0;
}

double floor_us(const NetworkQuestion& question, const NetworkCosts& costs) {
  if (question.nodes <= 1) return 0;
  const double share = static_cast<double>(question.bytes()) / question.nodes;
  return costs.latency_us + 2 * (question.nodes - 1) * share * 1e-3 / costs.gigabytes;
}

}  // namespace arcomm::bench

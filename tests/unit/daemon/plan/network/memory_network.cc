#include "tests/unit/daemon/plan/network/memory_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <utility>

#include "daemon/plan/network/network_shards.h"
#include "daemon/plan/network/network_stages.h"
#include "daemon/plan/network/ring_schedule.h"
#include "kernels/host/launch.h"
#include "kernels/host/reference.h"

namespace arcomm {
namespace {

using Bytes = std::vector<std::byte>;
using Results = std::vector<Bytes>;

// What is under way: things to do when they arrive, in any order.
class Air {
 public:
  explicit Air(std::mt19937_64& random) : random_(random) {}
  void send(std::function<void()> arrive) { under_way_.push_back(std::move(arrive)); }
  void settle() {
    while (!under_way_.empty()) {
      std::swap(under_way_[random_() % under_way_.size()], under_way_.back());
      const std::function<void()> arrive = std::move(under_way_.back());
      under_way_.pop_back();
      arrive();
    }
  }

 private:
  std::mt19937_64& random_;
  std::vector<std::function<void()>> under_way_;
};

const std::byte* at(const Bytes& bytes, DType dtype, ElementRange range) {
  return bytes.data() + range.first * size_of(dtype);
}
std::byte* at(Bytes& bytes, DType dtype, ElementRange range) {
  return bytes.data() + range.first * size_of(dtype);
}

Bytes part_of(const Bytes& bytes, DType dtype, ElementRange range) {
  const std::byte* const from = at(bytes, dtype, range);
  return {from, from + range.size() * size_of(dtype)};
}

Results empty_results(const MemoryOperation& operation) {
  return Results(operation.question.nodes, Bytes(operation.question.bytes()));
}

void reduce(const MemoryOperation& operation, ReduceAs as, std::uint64_t count,
            const std::vector<const std::byte*>& inputs, std::byte* output) {
  AllReduceArgs args;
  as.tell(args);
  args.count = count;
  args.num_inputs = static_cast<std::uint32_t>(inputs.size());
  args.num_outputs = 1;
  args.divisor = operation.world;
  std::copy(inputs.begin(), inputs.end(), args.inputs);
  args.outputs[0] = output;
  all_reduce_range(Choice{}, args, 0, count);
}

// What an owner does: it takes the chunks of all nodes, its own included, and combines them in the
// order of nodes once the last is there.
class Gathering {
 public:
  Gathering(const MemoryOperation& operation, ElementRange chunk)
      : operation_(operation), chunk_(chunk), came_(operation.question.nodes) {}

  // True when it was the last.
  bool take(std::uint32_t node, Bytes part) {
    EXPECT_TRUE(came_[node].empty()) << "a chunk came twice";
    came_[node] = std::move(part);
    return ++count_ == came_.size();
  }
  Bytes combine() const {
    Bytes result(chunk_.size() * size_of(operation_.question.dtype));
    std::vector<const std::byte*> inputs;
    for (const Bytes& part : came_) inputs.push_back(part.data());
    reduce(operation_, reduce_partials(operation_.question, operation_.choice.partials),
           chunk_.size(), inputs, result.data());
    return result;
  }

 private:
  const MemoryOperation& operation_;
  ElementRange chunk_;
  std::vector<Bytes> came_;
  std::size_t count_ = 0;
};

// One chunk of every shard on its way around, at one node.
class RingNode {
 public:
  RingNode(const MemoryOperation& operation, const RingSchedule& schedule, std::uint32_t here,
           Bytes& result)
      : operation_(operation), schedule_(schedule), here_(here), result_(result) {}

  RingStep step(std::uint32_t index) const { return schedule_.step(index); }
  std::uint32_t steps() const { return schedule_.steps(); }

  Bytes own(ElementRange chunk) const {
    return part_of(operation_.partials[here_], operation_.choice.partials, chunk);
  }
  // Does its duty with what came, and says what goes on.
  Bytes take(const RingReceive& in, ElementRange chunk, Bytes came) {
    const NetworkQuestion& question = operation_.question;
    const DType partials = operation_.choice.partials;
    if (in.duty == RingDuty::Combine) {
      Bytes sum(came.size());
      reduce(operation_, reduce_on_the_way(question, partials), chunk.size(),
             {came.data(), own(chunk).data()}, sum.data());
      return sum;
    }
    if (in.duty == RingDuty::Finish) {
      Bytes sum(chunk.size() * size_of(question.dtype));
      reduce(operation_, reduce_partials(question, partials), chunk.size(),
             {came.data(), own(chunk).data()}, sum.data());
      came = std::move(sum);
    }
    EXPECT_NE(in.duty, RingDuty::None);
    std::memcpy(at(result_, question.dtype, chunk), came.data(), came.size());
    return came;
  }

 private:
  const MemoryOperation& operation_;
  RingSchedule schedule_;
  std::uint32_t here_;
  Bytes& result_;
};

// Chunks move as soon as they can, each by itself.
class Ring {
 public:
  Ring(const MemoryOperation& operation, const RingShape& shape, Air& air)
      : results_(empty_results(operation)),
        rounds_(operation.question,
                std::max<std::uint64_t>(shape.chunk_bytes / size_of(operation.choice.partials), 1),
                shape.slots),
        air_(air) {
    const std::uint32_t count = operation.question.nodes;
    for (std::uint32_t here = 0; here < count; ++here) {
      nodes_.emplace_back(operation, RingSchedule(count, here, shape.bidirectional), here,
                          results_[here]);
    }
  }

  Results run() {
    for (std::uint64_t round = 0; round < rounds_.count(); ++round) {
      for (std::uint32_t here = 0; here < nodes_.size(); ++here) {
        const RingSend first = nodes_[here].step(0).right;
        const ElementRange piece = rounds_.piece(first.shard, round);
        for (std::uint64_t c = 0; c < chunks_in(piece, rounds_.chunk_elements()); ++c) {
          const ElementRange chunk = chunk_of(piece, rounds_.chunk_elements(), c);
          go(0, first, false, chunk, nodes_[here].own(chunk));
        }
      }
    }
    air_.settle();
    return results_;
  }

 private:
  void go(std::uint32_t index, const RingSend& out, bool leftwards, ElementRange chunk,
          Bytes bytes) {
    air_.send([this, index, out, leftwards, chunk, bytes = std::move(bytes)] {
      RingNode& node = nodes_[out.to];
      const RingStep step = node.step(index);
      const RingReceive& in = leftwards ? step.from_right : step.from_left;
      EXPECT_EQ(in.shard, out.shard);
      const Bytes on = node.take(in, chunk, bytes);
      if (index + 1 == node.steps()) return;
      const RingStep next = node.step(index + 1);
      const bool both = in.duty == RingDuty::Finish;
      if (next.right.used && next.right.shard == in.shard && (both || !leftwards))
        go(index + 1, next.right, false, chunk, on);
      if (next.left.used && next.left.shard == in.shard && (both || leftwards))
        go(index + 1, next.left, true, chunk, on);
    });
  }

  Results results_;
  RingRounds rounds_;
  Air& air_;
  std::vector<RingNode> nodes_;
};

void reduce_by_reference(const MemoryOperation& operation, ReduceAs as, ElementRange range,
                         std::initializer_list<const Bytes*> inputs, DType input_type,
                         Bytes& output, DType output_type) {
  AllReduceArgs args;
  as.tell(args);
  args.count = range.size();
  args.num_outputs = 1;
  args.divisor = operation.world;
  for (const Bytes* input : inputs) args.inputs[args.num_inputs++] = at(*input, input_type, range);
  args.outputs[0] = at(output, output_type, range);
  reference::all_reduce_range(args, 0, args.count);
}

}  // namespace

Results run_exchange(const MemoryOperation& operation, std::uint64_t chunk_elements,
                     std::mt19937_64& random) {
  const NetworkQuestion& question = operation.question;
  const ElementRange all{0, question.count};
  Results results = empty_results(operation);
  Air air(random);
  for (std::uint64_t c = 0; c < chunks_in(all, chunk_elements); ++c) {
    const ElementRange chunk = chunk_of(all, chunk_elements, c);
    std::vector<Gathering> nodes(question.nodes, Gathering(operation, chunk));
    for (std::uint32_t to = 0; to < question.nodes; ++to) {
      for (std::uint32_t from = 0; from < question.nodes; ++from) {
        air.send([&, to, from] {
          if (!nodes[to].take(from,
                              part_of(operation.partials[from], operation.choice.partials, chunk)))
            return;
          const Bytes result = nodes[to].combine();
          std::memcpy(at(results[to], question.dtype, chunk), result.data(), result.size());
        });
      }
    }
    air.settle();
  }
  return results;
}

Results run_direct(const MemoryOperation& operation, std::uint64_t chunk_elements,
                   std::mt19937_64& random) {
  const NetworkQuestion& question = operation.question;
  const NetworkShards shards(question);
  Results results = empty_results(operation);
  Air air(random);
  for (std::uint32_t owner = 0; owner < question.nodes; ++owner) {
    const ElementRange shard = shards.of(owner);
    for (std::uint64_t c = 0; c < chunks_in(shard, chunk_elements); ++c) {
      const ElementRange chunk = chunk_of(shard, chunk_elements, c);
      Gathering gathering(operation, chunk);
      for (std::uint32_t from = 0; from < question.nodes; ++from) {
        air.send([&, from] {
          if (!gathering.take(from,
                              part_of(operation.partials[from], operation.choice.partials, chunk)))
            return;
          for (std::uint32_t to = 0; to < question.nodes; ++to) {
            air.send([&, to, result = gathering.combine()] {
              std::memcpy(at(results[to], question.dtype, chunk), result.data(), result.size());
            });
          }
        });
      }
      air.settle();
    }
  }
  return results;
}

Results run_ring(const MemoryOperation& operation, const RingShape& shape,
                 std::mt19937_64& random) {
  Air air(random);
  return Ring(operation, shape, air).run();
}

Bytes result_in_order_of_nodes(const MemoryOperation& operation) {
  const NetworkQuestion& question = operation.question;
  const DType partials = operation.choice.partials;
  const ElementRange all{0, question.count};
  Bytes sum = operation.partials[0], result(question.bytes());
  for (std::uint32_t node = 1; node < question.nodes; ++node) {
    // A rounded partial result is widened again: more than two at once are rounded once.
    if (partials != accumulator_of(question.dtype)) break;
    const Bytes so_far = sum;
    reduce_by_reference(operation, reduce_on_the_way(question, partials), all,
                        {&so_far, &operation.partials[node]}, partials, sum, partials);
  }
  AllReduceArgs args;
  reduce_partials(question, partials).tell(args);
  args.count = question.count;
  args.num_outputs = 1;
  args.divisor = operation.world;
  if (partials == accumulator_of(question.dtype)) {
    args.inputs[args.num_inputs++] = sum.data();
  } else {
    for (const Bytes& partial : operation.partials) args.inputs[args.num_inputs++] = partial.data();
  }
  args.outputs[0] = result.data();
  reference::all_reduce_range(args, 0, args.count);
  return result;
}

Bytes result_in_order_of_ring(const MemoryOperation& operation) {
  const NetworkQuestion& question = operation.question;
  const DType partials = operation.choice.partials;
  const std::uint32_t nodes = question.nodes;
  Bytes result(question.bytes());
  for (std::uint32_t shard = 0; shard < nodes; ++shard) {
    const ElementRange range = NetworkShards(question).of(shard);
    Bytes sum = operation.partials[(shard + 1) % nodes];
    for (std::uint32_t hop = 2; hop < nodes; ++hop) {
      const Bytes so_far = sum;
      reduce_by_reference(operation, reduce_on_the_way(question, partials), range,
                          {&so_far, &operation.partials[(shard + hop) % nodes]}, partials, sum,
                          partials);
    }
    reduce_by_reference(operation, reduce_partials(question, partials), range,
                        {&sum, &operation.partials[shard]}, partials, result, question.dtype);
  }
  return result;
}

}  // namespace arcomm

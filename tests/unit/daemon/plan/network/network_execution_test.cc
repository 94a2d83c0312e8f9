// Every algorithm gives every node the right result, over the kernels and in one memory: any count,
// any number of nodes, any chunks, whatever arrives first.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <sstream>

#include "daemon/plan/network/network_stages.h"
#include "kernels/host/element.h"
#include "kernels/host/launch.h"
#include "tests/unit/daemon/plan/network/memory_network.h"

namespace arcomm {
namespace {

struct Kind {
  DType dtype;
  ReduceOp op;
  NetPartials partials = NetPartials::Wide;
};
constexpr Kind kKinds[] = {
    {DType::Float32, ReduceOp::Sum}, {DType::BFloat16, ReduceOp::Avg},
    {DType::Float16, ReduceOp::Sum}, {DType::BFloat16, ReduceOp::Avg, NetPartials::DType},
    {DType::Float64, ReduceOp::Avg}, {DType::Float32, ReduceOp::Min},
    {DType::Int8, ReduceOp::Avg},    {DType::Uint64, ReduceOp::Prod},
    {DType::Float16, ReduceOp::Max},
};

void fill_ranks(std::vector<std::byte>& to, DType dtype, std::mt19937_64& random) {
  const std::size_t size = size_of(dtype);
  for (std::size_t i = 0; i < to.size(); i += size) {
    std::uint64_t bits = random();
    // Of very different sizes, so that the order of additions shows.
    const float value =
        std::ldexp(static_cast<float>(bits % 4096) - 2048.0F, static_cast<int>(bits >> 32) % 12);
    if (dtype == DType::Float32) bits = std::bit_cast<std::uint32_t>(value);
    if (dtype == DType::Float64) bits = std::bit_cast<std::uint64_t>(double{value} * 1.1);
    if (dtype == DType::Float16) bits = float16_from_float(value);
    if (dtype == DType::BFloat16) bits = bfloat16_from_float(value);
    std::memcpy(&to[i], &bits, size);
  }
}

struct Sample {
  MemoryOperation operation;
  std::vector<std::vector<std::byte>> ranks;
};

// Some ranks on each node: their partial results by the kernels.
Sample make(const Kind& kind, std::uint32_t nodes, std::uint64_t count, NetAlgorithm algorithm,
            std::mt19937_64& random) {
  Sample sample;
  MemoryOperation& operation = sample.operation;
  std::vector<std::uint32_t> ranks_of_node(nodes);
  const bool one_each = random() % 2 == 0;
  for (std::uint32_t& ranks : ranks_of_node) {
    ranks = one_each ? 1 : 1 + static_cast<std::uint32_t>(random() % 3);
    operation.world += ranks;
  }
  operation.question = {.count = count,
                        .dtype = kind.dtype,
                        .op = kind.op,
                        .nodes = nodes,
                        .one_seat_each = operation.world == nodes};
  operation.choice = choose_network(operation.question, {.order = NetOrder::OfRing,
                                                         .partials = kind.partials,
                                                         .algorithm = algorithm,
                                                         .ring = {.min_shard_bytes = 0}});
  for (const std::uint32_t ranks : ranks_of_node) {
    AllReduceArgs args;
    reduce_ranks(operation.question, operation.choice.partials).tell(args);
    args.count = count;
    args.num_outputs = 1;
    args.divisor = operation.world;
    std::vector<std::vector<std::byte>> here(ranks,
                                             std::vector<std::byte>(operation.question.bytes()));
    for (auto& rank : here) {
      fill_ranks(rank, kind.dtype, random);
      args.inputs[args.num_inputs++] = rank.data();
    }
    auto& partial = operation.partials.emplace_back(count * size_of(operation.choice.partials));
    args.outputs[0] = partial.data();
    all_reduce_range(Choice{}, args, 0, count);
    for (auto& rank : here) sample.ranks.push_back(std::move(rank));
  }
  return sample;
}

std::vector<std::byte> whole(const Sample& sample) {
  const MemoryOperation& operation = sample.operation;
  AllReduceArgs args = AllReduceArgs::among(operation.world, operation.question.count,
                                            operation.question.dtype, operation.question.op);
  std::vector<std::byte> result(operation.question.bytes());
  args.num_outputs = 1;
  for (std::uint32_t r = 0; r < operation.world; ++r) args.inputs[r] = sample.ranks[r].data();
  args.outputs[0] = result.data();
  all_reduce_range(Choice{}, args, 0, args.count);
  return result;
}

std::string told(const Kind& kind, std::uint32_t nodes, std::uint64_t count) {
  std::ostringstream out;
  out << kind.dtype << ' ' << kind.op << ", " << nodes << " nodes, " << count << " elements";
  return out.str();
}

constexpr std::uint32_t kCountsOfNodes[] = {2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 21};
constexpr std::uint64_t kElements[] = {0, 1, 5, 16, 100, 1500};

TEST(NetworkExecution, ExchangeAndDirectGiveTheSameBitsInTheOrderOfNodes) {
  std::mt19937_64 random(1);
  for (const Kind& kind : kKinds) {
    for (const std::uint32_t nodes : kCountsOfNodes) {
      for (const std::uint64_t count : kElements) {
        const Sample sample = make(kind, nodes, count, NetAlgorithm::Direct, random);
        const MemoryOperation& operation = sample.operation;
        ASSERT_EQ(operation.choice.algorithm, NetworkAlgorithm::Direct);
        const auto wanted = result_in_order_of_nodes(operation);
        const std::uint64_t chunk = 1 + random() % 400;
        for (const auto& result : run_exchange(operation, chunk, random))
          ASSERT_EQ(result, wanted) << told(kind, nodes, count);
        for (const auto& result : run_direct(operation, chunk, random))
          ASSERT_EQ(result, wanted) << told(kind, nodes, count);
        if (operation.question.one_seat_each) {
          EXPECT_EQ(whole(sample), wanted) << told(kind, nodes, count);
        }
      }
    }
  }
}

TEST(NetworkExecution, TheRingsOrderDependsOnNothingButTheNumberOfNodesAndTheCount) {
  std::mt19937_64 random(2);
  for (const Kind& kind : kKinds) {
    for (const std::uint32_t nodes : kCountsOfNodes) {
      for (const std::uint64_t count : kElements) {
        const Sample sample = make(kind, nodes, count, NetAlgorithm::Ring, random);
        const MemoryOperation& operation = sample.operation;
        ASSERT_EQ(operation.choice.algorithm, NetworkAlgorithm::Ring);
        const auto wanted = result_in_order_of_ring(operation);
        for (const std::uint64_t chunk_bytes : {8u, 72u, 4096u}) {
          const RingShape shape{.chunk_bytes = chunk_bytes,
                                .slots = 1 + random() % 9,
                                .bidirectional = random() % 2 == 0};
          for (const auto& result : run_ring(operation, shape, random))
            ASSERT_EQ(result, wanted) << told(kind, nodes, count);
        }
        if (any_order_gives_the_same(kind.dtype)) {
          EXPECT_EQ(wanted, whole(sample)) << told(kind, nodes, count);
        }
      }
    }
  }
}

TEST(NetworkExecution, AnOrderOfItsOwnShowsInFloats) {
  std::mt19937_64 random(3);
  const Sample sample = make({DType::Float32, ReduceOp::Sum}, 8, 1500, NetAlgorithm::Ring, random);
  EXPECT_NE(result_in_order_of_ring(sample.operation), result_in_order_of_nodes(sample.operation));
}

}  // namespace
}  // namespace arcomm

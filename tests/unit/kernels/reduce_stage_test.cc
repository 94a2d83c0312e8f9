#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/host/element.h"
#include "kernels/host/launch.h"
#include "kernels/host/reference.h"
#include "tests/unit/kernels/on_target.h"
#include "tests/unit/kernels/sample_operation.h"

namespace arcomm {
namespace {

bool is_float(DType dtype) {
  return dtype == DType::Float16 || dtype == DType::BFloat16 || dtype == DType::Float32 ||
         dtype == DType::Float64;
}

// Where the order in which ranks are combined may change nothing.
bool grouping_changes_nothing(DType dtype, ReduceOp op) {
  return !is_float(dtype) || op == ReduceOp::Min || op == ReduceOp::Max;
}

// Elements of one kind, `shift` elements beyond a cache line, with guards around them.
class Elements {
 public:
  Elements(DType dtype, std::uint64_t count, std::uint64_t shift)
      : size_(size_of(dtype)), bytes_(count * size_), memory_(bytes_ + 3 * kLine, kGuard) {
    const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
    start_ = (kLine - base % kLine) % kLine + shift * size_ % kLine;
  }

  std::byte* data() { return memory_.data() + start_; }
  const std::byte* data() const { return memory_.data() + start_; }
  std::vector<std::byte> values() const { return {data(), data() + bytes_}; }
  std::size_t element_bytes() const { return size_; }
  // No byte beside them, nor of an element outside of [first, last), was written.
  bool touched_only(std::uint64_t first, std::uint64_t last) const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const bool inside = i >= start_ + first * size_ && i < start_ + last * size_;
      if (!inside && memory_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::byte kGuard{0xa5};

  std::size_t size_, bytes_;
  std::vector<std::byte> memory_;
  std::size_t start_ = 0;
};

// How a stage is run: in one piece by the reference, or cut somewhere by the kernel.
enum class By : std::uint8_t { Reference, Range, Tiles };

void run(By by, const AllReduceArgs& args, std::mt19937_64& random) {
  const bool around_caches = random() % 2 == 0;
  const Choice choice{.algorithm = around_caches ? Algorithm::TiledStreaming : Algorithm::Tiled,
                      .tile_bytes = kMinTileBytes,
                      .streams = 1};
  switch (by) {
    case By::Reference:
      return reference::all_reduce_range(args, 0, args.count);
    case By::Range:
      for (std::uint64_t first = 0; first < args.count;) {
        const std::uint64_t last = std::min(args.count, first + 1 + random() % args.count);
        all_reduce_range(choice, args, first, last);
        first = last;
      }
      return;
    case By::Tiles: {
      TileCursor cursor;
      cursor.start(choice, args);
      while (cursor.pull(choice, args)) {
      }
      EXPECT_TRUE(cursor.finished());
      return;
    }
  }
}

// Ranks on nodes: rank r's input, and which ranks make up which node (in their order).
struct World {
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  std::uint64_t count = 0;
  std::vector<Elements> ranks;
  std::vector<std::uint32_t> ranks_of_node;

  std::uint32_t size() const { return static_cast<std::uint32_t>(ranks.size()); }
  std::string text() const {
    std::ostringstream out;
    out << dtype << ' ' << op << " count=" << count << " ranks of nodes:";
    for (const std::uint32_t number : ranks_of_node) out << ' ' << number;
    return out.str();
  }
};

World random_world(DType dtype, ReduceOp op, std::mt19937_64& random) {
  constexpr std::uint64_t kLengths[] = {1, 2, 7, 15, 16, 17, 63, 64, 65, 129, 1100, 2500};
  World world;
  world.dtype = dtype;
  world.op = op;
  world.count = kLengths[random() % std::size(kLengths)];
  const bool one_each = random() % 3 == 0;
  const std::uint64_t nodes = 1 + random() % 6;
  for (std::uint64_t n = 0; n < nodes; ++n) {
    world.ranks_of_node.push_back(one_each ? 1U : static_cast<std::uint32_t>(1 + random() % 4));
    for (std::uint32_t r = 0; r < world.ranks_of_node.back(); ++r) {
      Elements& rank = world.ranks.emplace_back(dtype, world.count, random() % 5);
      fill_sample(rank.data(), world.count, dtype, random);
    }
  }
  return world;
}

AllReduceArgs stage_args(const World& world, ReduceStage stage) {
  AllReduceArgs args;
  args.count = world.count;
  args.num_inputs = args.num_outputs = 1;
  args.divisor = world.size();
  args.dtype = world.dtype;
  args.op = world.op;
  args.stage = stage;
  return args;
}

std::vector<std::byte> whole(World& world, By by, std::mt19937_64& random) {
  AllReduceArgs args = stage_args(world, ReduceStage::Whole);
  args.num_inputs = world.size();
  for (std::uint32_t r = 0; r < world.size(); ++r) args.inputs[r] = world.ranks[r].data();
  Elements result(world.dtype, world.count, random() % 5);
  args.outputs[0] = result.data();
  run(by, args, random);
  return result.values();
}

// Each node's partial result, and then the final one of all of them to two outputs. Sets
// `partials` to what travelled.
std::vector<std::byte> in_two_stages(World& world, By by, bool in_place, std::mt19937_64& random,
                                     std::vector<std::vector<std::byte>>& travelled) {
  const DType wide = accumulator_of(world.dtype);
  const bool may_be_in_place = in_place && wide == world.dtype;
  std::vector<Elements> partials;
  std::uint32_t first_rank = 0;
  for (const std::uint32_t ranks : world.ranks_of_node) {
    AllReduceArgs args = stage_args(world, ReduceStage::Partial);
    args.num_inputs = ranks;
    for (std::uint32_t r = 0; r < ranks; ++r) args.inputs[r] = world.ranks[first_rank + r].data();
    Elements& partial = partials.emplace_back(wide, world.count, random() % 5);
    args.outputs[0] = partial.data();
    std::vector<std::byte> kept;
    if (may_be_in_place) {
      args.outputs[0] = world.ranks[first_rank].data();
      kept = world.ranks[first_rank].values();
    }
    run(by, args, random);
    if (may_be_in_place) {  // the world is used again
      std::memcpy(partial.data(), args.outputs[0], kept.size());
      std::memcpy(args.outputs[0], kept.data(), kept.size());
    }
    EXPECT_TRUE(partial.touched_only(0, world.count));
    travelled.push_back(partial.values());
    first_rank += ranks;
  }
  AllReduceArgs args = stage_args(world, ReduceStage::Final);
  args.num_inputs = static_cast<std::uint32_t>(partials.size());
  args.num_outputs = 2;
  for (std::uint32_t n = 0; n < args.num_inputs; ++n) args.inputs[n] = partials[n].data();
  Elements result(world.dtype, world.count, random() % 5);
  Elements second(world.dtype, world.count, random() % 5);
  args.outputs[0] = may_be_in_place ? partials[0].data() : result.data();
  args.outputs[1] = second.data();
  run(by, args, random);
  if (may_be_in_place)
    std::memcpy(result.data(), args.outputs[0], world.count * result.element_bytes());
  EXPECT_TRUE(result.touched_only(0, world.count) && second.touched_only(0, world.count));
  EXPECT_EQ(result.values(), second.values());
  return result.values();
}

using StagesOnTarget = OnTarget;

TEST_P(StagesOnTarget, FinalOverPartialsIsTheReferenceWhereverItIsCut) {
  std::mt19937_64 random(20261123);
  for (const DType dtype : kEveryType) {
    for (const ReduceOp op : kEveryOp) {
      for (int i = 0; i < 12; ++i) {
        World world = random_world(dtype, op, random);
        std::vector<std::vector<std::byte>> wanted_partials;
        const auto wanted = in_two_stages(world, By::Reference, false, random, wanted_partials);
        for (const By by : {By::Range, By::Tiles}) {
          std::vector<std::vector<std::byte>> partials;
          ASSERT_EQ(in_two_stages(world, by, i % 2 == 0, random, partials), wanted) << world.text();
          ASSERT_EQ(partials, wanted_partials) << world.text();
        }
        const bool one_rank_each = world.size() == world.ranks_of_node.size();
        if (one_rank_each || grouping_changes_nothing(dtype, op)) {
          ASSERT_EQ(whole(world, By::Range, random), wanted) << world.text();
        }
      }
    }
  }
}

TEST_P(StagesOnTarget, NothingOutsideOfTheRangeIsWritten) {
  std::mt19937_64 random(5);
  for (const DType dtype : kEveryType) {
    for (const ReduceStage stage : {ReduceStage::Partial, ReduceStage::Final}) {
      const DType from = stage == ReduceStage::Final ? accumulator_of(dtype) : dtype;
      const DType to = stage == ReduceStage::Partial ? accumulator_of(dtype) : dtype;
      for (int i = 0; i < 20; ++i) {
        const std::uint64_t count = 1 + random() % 300, first = random() % count;
        const std::uint64_t last = first + random() % (count - first + 1);
        Elements in(from, count, random() % 5), out(to, count, random() % 5);
        fill_sample(in.data(), count, from, random);
        AllReduceArgs args = AllReduceArgs::among(1, count, dtype, ReduceOp::Sum);
        args.stage = stage;
        args.inputs[0] = in.data();
        args.outputs[0] = out.data();
        all_reduce_range(random() % 2 == 0 ? streaming() : inline_choice(), args, first, last);
        ASSERT_TRUE(out.touched_only(first, last)) << dtype;
      }
    }
  }
}

// 2048 + 1 is a tie in float16: rounded where it leaves each node, the ones would vanish.
TEST_P(StagesOnTarget, PartialsOfHalvesAreNotRounded) {
  const std::uint16_t ranks[] = {float16_from_float(2048), float16_from_float(1),
                                 float16_from_float(1), float16_from_float(1)};
  float partials[2] = {};
  std::uint16_t result = 0;
  for (std::uint32_t node = 0; node < 2; ++node) {
    AllReduceArgs args = AllReduceArgs::among(2, 1, DType::Float16);
    args.stage = ReduceStage::Partial;
    args.num_outputs = 1;
    args.inputs[0] = &ranks[2 * node];
    args.inputs[1] = &ranks[2 * node + 1];
    args.outputs[0] = &partials[node];
    all_reduce_range(inline_choice(), args, 0, 1);
  }
  EXPECT_EQ(partials[0], 2049.0F);
  AllReduceArgs args = AllReduceArgs::among(2, 1, DType::Float16);
  args.stage = ReduceStage::Final;
  args.num_outputs = 1;
  args.inputs[0] = &partials[0];
  args.inputs[1] = &partials[1];
  args.outputs[0] = &result;
  all_reduce_range(inline_choice(), args, 0, 1);
  EXPECT_EQ(float_from_float16(result), 2052.0F);  // 2051 is a tie, too: to even
}

TEST_P(StagesOnTarget, AvgIsDividedOnceAtTheEnd) {
  const std::int8_t ranks[] = {100, 27, 3};
  std::int8_t partials[2] = {}, result = 0;
  AllReduceArgs args = AllReduceArgs::among(2, 1, DType::Int8, ReduceOp::Avg);
  args.stage = ReduceStage::Partial;
  args.num_outputs = 1;
  args.divisor = 3;
  args.inputs[0] = &ranks[0];
  args.inputs[1] = &ranks[1];
  args.outputs[0] = &partials[0];
  all_reduce_range(inline_choice(), args, 0, 1);
  EXPECT_EQ(partials[0], 127);
  args.num_inputs = 1;
  args.inputs[0] = &ranks[2];
  args.outputs[0] = &partials[1];
  all_reduce_range(inline_choice(), args, 0, 1);
  args.stage = ReduceStage::Final;
  args.num_inputs = 2;
  args.inputs[0] = &partials[0];
  args.inputs[1] = &partials[1];
  args.outputs[0] = &result;
  all_reduce_range(inline_choice(), args, 0, 1);
  EXPECT_EQ(result, -126 / 3);  // 130 wraps, as it does on one node
}

// The lowest rank's zero stays, and a NaN of any node's is the canonical one.
TEST_P(StagesOnTarget, ZerosAndNansAreThoseOfOneNode) {
  const float odd_nan = std::bit_cast<float>(0xffc12345U);
  const auto minimum = [](float first, float second) {
    AllReduceArgs args = AllReduceArgs::among(1, 1, DType::Float32, ReduceOp::Min);
    float partials[2] = {}, result = 0;
    const float* const ranks[] = {&first, &second};
    args.stage = ReduceStage::Partial;
    for (int node = 0; node < 2; ++node) {
      args.inputs[0] = ranks[node];
      args.outputs[0] = &partials[node];
      all_reduce_range(inline_choice(), args, 0, 1);
    }
    args.stage = ReduceStage::Final;
    args.num_inputs = 2;
    args.inputs[0] = &partials[0];
    args.inputs[1] = &partials[1];
    args.outputs[0] = &result;
    all_reduce_range(inline_choice(), args, 0, 1);
    return std::bit_cast<std::uint32_t>(result);
  };
  EXPECT_EQ(minimum(-0.0F, 0.0F), 0x80000000U);
  EXPECT_EQ(minimum(0.0F, -0.0F), 0U);
  EXPECT_EQ(minimum(1.0F, odd_nan), 0x7fc00000U);
  EXPECT_EQ(minimum(odd_nan, 1.0F), 0x7fc00000U);
}

INSTANTIATE_TEST_SUITE_P(Targets, StagesOnTarget, testing::ValuesIn(runnable_targets()),
                         [](const auto& test) { return std::string(hwy::TargetName(test.param)); });

}  // namespace
}  // namespace arcomm

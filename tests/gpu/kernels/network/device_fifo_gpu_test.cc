// The network kernels and the CPU proxy on one GPU: a kernel of each node, in streams of their own,
// with FIFOs in pinned memory between them and one proxy thread whose wires face each other. Sums
// are those of the reference bit for bit, on random data, into poisoned memory between guards; and
// every wait ends.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/kernels/network/network_world.h"

namespace arcomm::gpu {
namespace {

using namespace std::chrono_literals;

constexpr SlotMode kModes[] = {SlotMode::Normal, SlotMode::Offset, SlotMode::Pointer};
constexpr std::uint64_t kLongNs = 8'000'000'000;

// Exchange, ring, and ring both ways, among so many nodes.
std::vector<NetworkShape> shapes_among(std::uint32_t nodes) {
  std::vector<NetworkShape> shapes;
  for (const SlotMode mode : kModes) {
    shapes.push_back({.mode = mode, .nodes = nodes});
    shapes.push_back({.is_ring = true, .mode = mode, .nodes = nodes});
    if (nodes > 2)
      shapes.push_back({.is_ring = true, .is_bidirectional = true, .mode = mode, .nodes = nodes});
  }
  return shapes;
}

double seconds_since(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

void expect_verdict(NetworkNode& node, std::uint32_t operation, ErrorCode code, int culprit) {
  const Done done = node.wait(operation);
  ASSERT_EQ(done.number, operation) << "no verdict";
  EXPECT_EQ(name_of(error_code_from(done.code)), name_of(code));
  EXPECT_EQ(done.culprit_rank, culprit);
}

TEST(DeviceFifo, EveryShapeAndSlotModeGivesTheReferencesBitsForAnyCount) {
  for (const std::uint32_t nodes : {2U, 3U, 4U}) {
    for (NetworkShape shape : shapes_among(nodes)) {
      for (const std::uint64_t count : {0ULL, 1ULL, 1000ULL, 100'003ULL, 1'000'000ULL}) {
        shape.count = count;
        SCOPED_TRACE(testing::Message() << shape);
        NetworkWorld world(shape);
        for (std::uint32_t operation = 1; operation <= 3; ++operation)
          ASSERT_NO_FATAL_FAILURE(world.run(operation));
        EXPECT_EQ(world.failures(), std::vector<std::string>{});
      }
    }
  }
}

TEST(DeviceFifo, EveryTypeAndOperationGivesTheReferencesBits) {
  for (unsigned type = 0; type < kDTypes; ++type) {
    for (unsigned op = 0; op < kReduceOps; ++op) {
      for (const bool is_wide : {false, true}) {
        const auto dtype = static_cast<DType>(type);
        if (is_wide && accumulator_of(dtype) == dtype) continue;
        for (NetworkShape shape : shapes_among(3)) {
          if (shape.mode != SlotMode::Normal) continue;
          shape.dtype = dtype;
          shape.op = static_cast<ReduceOp>(op);
          shape.is_wide = is_wide;
          shape.lanes = 2;
          shape.count = 5003;
          shape.chunk_elements = 512;
          SCOPED_TRACE(testing::Message() << shape);
          NetworkWorld world(shape);
          ASSERT_NO_FATAL_FAILURE(world.run(1));
        }
      }
    }
  }
}

TEST(DeviceFifo, AccumulatorsTravelInEverySlotMode) {
  for (NetworkShape shape : shapes_among(3)) {
    shape.dtype = DType::BFloat16;
    shape.is_wide = true;
    SCOPED_TRACE(testing::Message() << shape);
    NetworkWorld world(shape);
    for (std::uint32_t operation = 1; operation <= 3; ++operation)
      ASSERT_NO_FATAL_FAILURE(world.run(operation));
  }
}

TEST(DeviceFifo, TheResultMayGoWhereThePartialIs) {
  for (const std::uint32_t nodes : {2U, 3U}) {
    for (NetworkShape shape : shapes_among(nodes)) {
      shape.is_in_place = true;
      shape.count = 300'001;
      SCOPED_TRACE(testing::Message() << shape);
      NetworkWorld world(shape);
      for (std::uint32_t operation = 1; operation <= 10; ++operation)
        ASSERT_NO_FATAL_FAILURE(world.run(operation));
    }
  }
}

TEST(DeviceFifo, SeveralRanksOfANodeAreCombinedFirstAndAllGetTheResult) {
  for (const std::uint32_t nodes : {2U, 3U}) {
    for (const SlotMode mode : kModes) {
      for (const bool is_in_place : {false, true}) {
        for (unsigned type = 0; type < kDTypes; ++type) {
          NetworkShape shape{.mode = mode,
                             .dtype = static_cast<DType>(type),
                             .op = static_cast<ReduceOp>(type % kReduceOps),
                             .is_wide = true,
                             .is_in_place = is_in_place,
                             .nodes = nodes,
                             .count = 100'003,
                             .seats = 1 + type % 4,
                             .shift = type % 3};
          SCOPED_TRACE(testing::Message() << shape);
          NetworkWorld world(shape);
          for (std::uint32_t operation = 1; operation <= 3; ++operation)
            ASSERT_NO_FATAL_FAILURE(world.run(operation));
        }
      }
    }
  }
}

TEST(DeviceFifo, PointersMayBeOffTheirVectors) {
  for (NetworkShape shape : shapes_among(3)) {
    for (const DType dtype : {DType::Int8, DType::BFloat16, DType::Float32}) {
      shape.shift = 3;
      shape.dtype = dtype;
      SCOPED_TRACE(testing::Message() << shape);
      NetworkWorld world(shape);
      ASSERT_NO_FATAL_FAILURE(world.run(1));
    }
  }
}

TEST(DeviceFifo, AFifoServesManyOperations) {
  for (NetworkShape shape : shapes_among(3)) {
    shape.count = 20'000;
    shape.chunk_elements = 512;
    SCOPED_TRACE(testing::Message() << shape);
    NetworkWorld world(shape);
    for (std::uint32_t operation = 1; operation <= 200; ++operation)
      ASSERT_NO_FATAL_FAILURE(world.run(operation));
  }
}

TEST(DeviceFifo, AKernelWaitsForAPeerThatIsLate) {
  for (const NetworkShape& shape : shapes_among(2)) {
    SCOPED_TRACE(testing::Message() << shape);
    NetworkWorld world(shape);
    world.prepare(1);
    ASSERT_TRUE(world.node(0).launch(1, kLongNs));
    world.proxy().ring();
    std::this_thread::sleep_for(30ms);
    ASSERT_TRUE(world.node(1).launch(1, kLongNs));
    world.proxy().ring();
    ASSERT_NO_FATAL_FAILURE(world.expect_success(1));
    ASSERT_NO_FATAL_FAILURE(world.expect_reference_bits());
  }
}

TEST(DeviceFifo, APeerThatDoesNotComeIsNamedAtTheDeadline) {
  for (const NetworkShape& shape : shapes_among(2)) {
    for (const std::uint64_t count : {1000ULL, 1'000'000ULL}) {  // waits for data; for room, too
      NetworkShape with_count = shape;
      with_count.count = count;
      SCOPED_TRACE(testing::Message() << with_count);
      NetworkWorld world(with_count);
      world.prepare(1);
      const auto from = std::chrono::steady_clock::now();
      ASSERT_TRUE(world.node(0).launch(1, 50'000'000));
      world.proxy().ring();
      expect_verdict(world.node(0), 1, ErrorCode::DeadlineExceeded, 1);
      EXPECT_LT(seconds_since(from), 0.15);
      EXPECT_GT(seconds_since(from), 0.045);
      const std::vector<std::string> failures = world.failures(1);
      ASSERT_EQ(failures.size(), 1U);
      EXPECT_NE(failures[0].find("node 1"), std::string::npos) << failures[0];
    }
  }
}

TEST(DeviceFifo, TheDaemonMayCutAWaitShort) {
  NetworkWorld world({.count = 1000});
  world.prepare(1);
  const auto from = std::chrono::steady_clock::now();
  ASSERT_TRUE(world.node(0).launch(1, kLongNs));
  world.proxy().ring();
  std::this_thread::sleep_for(20ms);
  world.node(0).limit_waits(1'000'000);
  expect_verdict(world.node(0), 1, ErrorCode::DeadlineExceeded, 1);
  EXPECT_LT(seconds_since(from), 1.0) << "of the eight seconds that it may take";
}

TEST(DeviceFifo, AnAbortEndsEveryWaitAtOnce) {
  for (const NetworkShape& shape : shapes_among(3)) {
    for (const std::uint64_t count : {1000ULL, 1'000'000ULL}) {
      NetworkShape with_count = shape;
      with_count.count = count;
      SCOPED_TRACE(testing::Message() << with_count);
      NetworkWorld world(with_count);
      world.prepare(1);
      for (const std::uint32_t number : {0U, 1U})
        ASSERT_TRUE(world.node(number).launch(1, kLongNs));
      world.proxy().ring();
      std::this_thread::sleep_for(10ms);
      const auto from = std::chrono::steady_clock::now();
      world.on_proxy([](proxy::ProxyEngine& engine) {
        for (const std::uint64_t group : {0U, 1U})
          engine.fail_group(group, error(ErrorCode::Aborted, Reason::RemoteAborted, "no more"));
      });
      for (const std::uint32_t number : {0U, 1U}) {
        const Done done = world.node(number).wait(1);
        ASSERT_EQ(done.number, 1U) << "no verdict";
        EXPECT_EQ(name_of(error_code_from(done.code)), name_of(ErrorCode::Aborted));
      }
      EXPECT_LT(seconds_since(from), 1.0);
    }
  }
}

TEST(DeviceFifo, ALinkThatIsCutInTheMiddleEndsBothKernels) {
  for (NetworkShape shape : shapes_among(2)) {
    shape.count = 8'000'000;
    SCOPED_TRACE(testing::Message() << shape);
    NetworkWorld world(shape);
    world.prepare(1);
    ASSERT_NO_FATAL_FAILURE(world.launch(1, kLongNs));
    std::this_thread::sleep_for(5ms);
    const auto from = std::chrono::steady_clock::now();
    world.link(0, 1).cut();
    expect_verdict(world.node(0), 1, ErrorCode::Unavailable, 1);
    expect_verdict(world.node(1), 1, ErrorCode::Unavailable, 0);
    EXPECT_LT(seconds_since(from), 1.0) << "of the eight seconds that it may take";
    EXPECT_EQ(world.failures(2).size(), 2U);
  }
}

TEST(DeviceFifo, AChunkOfTheWrongLengthIsNeverSummed) {
  for (NetworkShape shape : shapes_among(2)) {
    SCOPED_TRACE(testing::Message() << shape);
    NetworkWorld world(shape);
    world.prepare(1);
    world.link(0, 1).shorten_next();
    ASSERT_NO_FATAL_FAILURE(world.launch(1, 200'000'000));
    int corrupt = 0, ended_well = 0;
    for (const std::uint32_t number : {0U, 1U}) {
      const Done done = world.node(number).wait(1);
      ASSERT_EQ(done.number, 1U) << "no verdict";
      corrupt += error_code_from(done.code) == ErrorCode::DataLoss ? 1 : 0;
      ended_well += done.code == 0 ? 1 : 0;
    }
    EXPECT_EQ(corrupt, 1);
    EXPECT_LE(ended_well, 1);  // the other one may have had all that it needs
  }
}

}  // namespace
}  // namespace arcomm::gpu

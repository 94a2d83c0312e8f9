// What GpuQueues promises of events, copies and combining, and the AllReduce that is made of them.
#include "daemon/exec/gpu/copy_operation.h"
#include "tests/conformance/gpu_hardware/fixture.h"

namespace arcomm {
namespace {

class GpuCopiesConformance : public GpuHardwareConformance {
 protected:
  static constexpr std::uint64_t kBytes = kCount * sizeof(float);

  QueueStream launches(Rank rank, std::uint32_t parity = 0) const {
    return {.queue = seat(rank).queue, .parity = parity};
  }
  QueueStream copies(Rank rank) const {
    return {.queue = seat(rank).queue, .kind = QueueStream::Kind::Copies};
  }
  QueueEvent record(Rank rank, QueueStream stream) {
    const Result<QueueEvent> event = launcher(rank).record(stream);
    EXPECT_TRUE(event.ok());
    EXPECT_NE(event ? event->id : 0, 0U);
    return event ? *event : QueueEvent{};
  }
  void wait(Rank rank, QueueStream stream, QueueEvent event) {
    const Status waits = launcher(rank).wait(stream, event);
    ASSERT_TRUE(waits) << waits.error().to_string();
  }
  void copy(Rank rank, const Memory& to, const Memory& from) {
    const int ordinal = seat(rank).device->ordinal();
    const Status copied =
        launcher(rank).copy(seat(rank).queue, to.data_on(ordinal), from.data_on(ordinal), kBytes);
    ASSERT_TRUE(copied) << copied.error().to_string();
  }
  void combine(Rank rank, const CombineCall& call, std::uint32_t parity = 0) {
    const Status launched = launcher(rank).combine(seat(rank).queue, parity, call);
    ASSERT_TRUE(launched) << launched.error().to_string();
  }
  // Says so when what is before it has ended; waits for no rank.
  void launch_nothing(Rank rank, std::uint32_t number = 1) {
    CudaAllReduce nothing = call(rank, number);
    nothing.count = 0;
    launch(rank, nothing);
  }

  void launch_copies(const std::vector<CudaAllReduce>& calls, std::uint32_t parity = 0,
                     std::uint64_t most_chunk_bytes = 0) {
    std::vector<CopyPart> parts;
    for (Rank rank = 0; rank < kRanks; ++rank)
      parts.push_back({.queues = &launcher(rank), .queue = seat(rank).queue, .call = &calls[rank]});
    const Status launched = launch_by_copy_engines(parts, parity, most_chunk_bytes);
    ASSERT_TRUE(launched) << launched.error().to_string();
  }
  std::vector<CudaAllReduce> calls(std::uint32_t number = 1, bool back = false) {
    std::vector<CudaAllReduce> made;
    for (Rank rank = 0; rank < kRanks; ++rank) made.push_back(call(rank, number, back));
    return made;
  }
};

TEST_P(GpuCopiesConformance, LaunchesWaitForTheEventOfAnotherRanksQueue) {
  if (seat(0).queue == 0) GTEST_SKIP() << "nothing may wait for a client here";
  hold(0, 7);
  wait(1, launches(1), record(0, launches(0)));
  launch_nothing(1);
  expect_busy_for_a_while(1);
  expect_silence(1);
  ASSERT_TRUE(launcher(0).store(doorbell(0), 7));
  expect_done(1, 1);
  expect_idle();
}

TEST_P(GpuCopiesConformance, CopiesWaitForTheEventOfAnotherRanksQueueAndKeepItsOwnFromBeingIdle) {
  if (seat(0).queue == 0) GTEST_SKIP() << "nothing may wait for a client here";
  hold(0, 7);
  wait(1, copies(1), record(0, launches(0)));
  copy(1, parts_[1].recv, parts_[1].send);
  expect_busy_for_a_while(1);
  expect_untouched(1);
  ASSERT_TRUE(launcher(0).store(doorbell(0), 7));
  expect_idle();
  EXPECT_EQ(floats(1, parts_[1].recv), floats(1, parts_[1].send));
}

TEST_P(GpuCopiesConformance, LaunchesWaitForCopiesIntoTheirRanksMemory) {
  copy(0, parts_[1].recv, parts_[0].send);
  wait(1, launches(1), record(0, copies(0)));
  launch_nothing(1);
  expect_done(1, 1);
  EXPECT_EQ(floats(1, parts_[1].recv), floats(0, parts_[0].send));
  expect_idle();
}

TEST_P(GpuCopiesConformance, CopiesOfOneQueueRunInOrder) {
  copy(0, parts_[1].recv, parts_[0].send);
  copy(0, parts_[0].recv, parts_[1].send);
  copy(0, parts_[1].recv, parts_[0].recv);
  expect_idle();
  EXPECT_EQ(floats(1, parts_[1].recv), floats(1, parts_[1].send));
}

TEST_P(GpuCopiesConformance, CopiesGoBesideALaunchThatWaits) {
  launch(0, call(0));
  const std::vector<float> sent = floats(0, parts_[0].send);
  copy(0, parts_[0].recv, parts_[0].send);
  EXPECT_TRUE(eventually([&] { return floats(0, parts_[0].recv) == sent; }));
  expect_busy_for_a_while(0);
  launch(1, call(1));
  expect_done();
  expect_sums(0);
}

TEST_P(GpuCopiesConformance, AnEventServesWhileOthersAreRecorded) {
  if (seat(0).queue == 0) GTEST_SKIP() << "nothing may wait for a client here";
  const QueueEvent before = record(0, launches(0));
  hold(0, 7);
  const QueueEvent behind = record(0, launches(0));
  for (std::uint32_t more = 0; more + 2 < kQueueEvents; ++more) {
    record(0, launches(0, more % 2));
    record(1, copies(1));
  }
  wait(1, launches(1), before);
  launch_nothing(1);
  expect_done(1, 1);
  wait(1, launches(1), behind);
  // Whoever was told to wait does, whatever becomes of the event.
  for (std::uint32_t more = 0; more < kQueueEvents; ++more) record(0, copies(0));
  launch_nothing(1, 2);
  expect_busy_for_a_while(1);
  ASSERT_TRUE(launcher(0).store(doorbell(0), 7));
  expect_done(1, 2);
  expect_idle();
}

TEST_P(GpuCopiesConformance, WhatLiesInOneMemoryIsCombined) {
  for (const bool in_place : {false, true}) {
    CombineCall work{.out = parts_[0].recv.data(), .count = kCount, .ranks = 3};
    Memory& other = more_.emplace_back(cleared(0, kBytes));
    put_all(in_place ? 4 : 1);
    copy(0, other, parts_[1].send);
    ASSERT_TRUE(becomes_idle(0));
    if (in_place) {
      copy(0, parts_[0].recv, parts_[0].send);
      ASSERT_TRUE(becomes_idle(0));
    }
    const Memory& own = in_place ? parts_[0].recv : parts_[0].send;
    const std::vector<float> a = floats(0, own), b = floats(0, other);
    work.parts[0] = own.data();
    work.parts[1] = work.parts[2] = other.data();
    combine(0, work, in_place ? 1 : 0);
    ASSERT_TRUE(becomes_idle(0));
    const std::vector<float> sums = floats(0, parts_[0].recv);
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(sums[i], a[i] + b[i] + b[i]) << i;
  }
}

TEST_P(GpuCopiesConformance, WhatCopyEnginesCarryGivesTheSumAndTellsAll) {
  launch_copies(calls());
  expect_done();
  expect_sums(0);
  expect_idle();
}

// Slots are used again and again, at all distances between the first and the last chunk; and a
// chunk of what is left, for which alone outputs are not used.
TEST_P(GpuCopiesConformance, TheSumIsTheSameInAnyChunksAndWhereverARankWantsIt) {
  float base = 0;
  std::uint32_t number = 0;
  for (const std::uint64_t chunk : {64U, 320U, 4096U}) {
    for (const std::uint32_t in_place : {0U, 1U, 2U, 3U}) {  // a bit for each rank
      put_all(++base);
      std::vector<CudaAllReduce> made = calls(++number);
      for (CudaAllReduce& one : made) {
        for (Rank rank = 0; rank < kRanks; ++rank) {
          if ((in_place >> rank & 1) != 0) one.recv[rank] = const_cast<void*>(one.send[rank]);
        }
      }
      launch_copies(made, number % 2, chunk);
      ASSERT_NO_FATAL_FAILURE(expect_done(number));
      for (Rank rank = 0; rank < kRanks; ++rank) {
        const bool own = (in_place >> rank & 1) != 0;
        ASSERT_NO_FATAL_FAILURE(
            expect_sums(rank, base, own ? parts_[rank].send : parts_[rank].recv));
        if (own) expect_untouched(rank);
      }
      expect_idle();
    }
  }
}

TEST_P(GpuCopiesConformance, ItKeepsOrderWithWhatIsLaunchedInTheRanksQueues) {
  launch_all(1);
  launch_copies(calls(2, true));
  launch_all(3);
  expect_done(3);
  expect_idle();
  for (Rank rank = 0; rank < kRanks; ++rank) {
    expect_sums(rank, 0, parts_[rank].send, 2);
    expect_sums(rank, 0, parts_[rank].recv, 4);
  }
}

TEST_P(GpuCopiesConformance, ItBeginsWhenAllRanksQueuesHaveComeThere) {
  if (seat(0).queue == 0) GTEST_SKIP() << "nothing may wait for a client here";
  hold(0, 7);
  launch_copies(calls());
  expect_busy_for_a_while(1);
  expect_untouched();
  for (Rank rank = 0; rank < kRanks; ++rank) expect_silence(rank);
  ASSERT_TRUE(launcher(0).store(doorbell(0), 7));
  expect_done();
  expect_sums(0);
  expect_idle();
}

TEST_P(GpuCopiesConformance, NoElementsTellAllAndTouchNothing) {
  std::vector<CudaAllReduce> nothing = calls();
  for (CudaAllReduce& one : nothing) one.count = 0;
  launch_copies(nothing);
  expect_done();
  expect_untouched();
  expect_idle();
}

TEST_P(GpuCopiesConformance, BothParitiesAlternate) {
  for (std::uint32_t number = 1; number <= 4; ++number) {
    const auto base = static_cast<float>(number);
    put_all(base);
    launch_copies(calls(number), number % 2);
    ASSERT_NO_FATAL_FAILURE(expect_done(number));
    ASSERT_NO_FATAL_FAILURE(expect_sums(base));
    expect_idle();
  }
}

INSTANTIATE_TEST_SUITE_P(Hardware, GpuCopiesConformance, testing::ValuesIn(all_gpu_hardware()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace arcomm

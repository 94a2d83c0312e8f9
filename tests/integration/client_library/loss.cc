// A daemon that stops, dies and comes back, and a process that forks.
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tests/integration/client_library/client_library.h"

namespace arcomm::support {
namespace {

TEST_F(ClientLibrary, TellsAForkedChildAndServesItsParentOn) {
  start();
  form(1);
  float value = 1;
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(arcAllReduce(&value, &value, 1, arcFloat32, arcSum, comm(0).get(), nullptr) ==
                        arcFailedPrecondition &&
                    last().reason == arcReasonForked
                ? 0
                : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  comm(0).all_reduce(&value, &value, 1);
}

TEST_F(ClientLibrary, GivesUpOnADaemonThatIsStopped) {
  start({}, kShort.count());
  form(2);
  arc::Buffer<float> values(1000);  // the daemon is not asked for staging memory
  daemon_->freeze();
  const auto begin = Clock::now();
  EXPECT_EQ(
      arcAllReduce(values.data(), values.data(), 1000, arcFloat32, arcSum, comm(0).get(), nullptr),
      arcDeadlineExceeded);
  EXPECT_LT(since(begin), kShort + milliseconds(100) + kSlack);
  EXPECT_EQ(
      arcAllReduce(values.data(), values.data(), 1000, arcFloat32, arcSum, comm(0).get(), nullptr),
      arcFailedPrecondition)
      << "the sequence has a gap: only a rebuild helps";
  arcResult_t state = arcSuccess;
  EXPECT_EQ(arcCommGetAsyncError(comm(0).get(), &state), arcSuccess);
  EXPECT_EQ(state, arcFailedPrecondition)
      << "this rank knows it, though the daemon does not answer";
  void* memory = nullptr;
  EXPECT_EQ(arcMemAlloc(&memory, 4096), arcDeadlineExceeded);
  daemon_->thaw();
  rebuild();
  std::thread other([this] {
    float value = 1;
    comm(1).all_reduce(&value, &value, 1);
  });
  float value = 1;
  comm(0).all_reduce(&value, &value, 1);
  other.join();
  EXPECT_EQ(value, 2);
}

TEST_F(ClientLibrary, EndsAGroupInTimeHoweverManyOfItsRanksAStoppedDaemonLeavesWaiting) {
  start({}, kShort.count());
  constexpr int kRanks = 8;
  form(kRanks);
  // Nothing here but the call itself is measured: whatever each rank added would show.
  constexpr milliseconds kLate{150};
  std::vector<arc::Buffer<float>> values;
  values.reserve(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) values.emplace_back(1000);
  daemon_->freeze();
  ASSERT_EQ(arcGroupStart(), arcSuccess);
  for (int rank = 0; rank < kRanks; ++rank) {
    float* mine = values[static_cast<std::size_t>(rank)].data();
    EXPECT_EQ(arcAllReduce(mine, mine, 1000, arcFloat32, arcSum, comm(rank).get(), nullptr),
              arcSuccess);
  }
  const auto begin = Clock::now();
  EXPECT_EQ(arcGroupEnd(), arcDeadlineExceeded);
  EXPECT_LT(since(begin), kShort + kLate);
  daemon_->thaw();
  rebuild();
  arc::Group group;
  for (int rank = 0; rank < kRanks; ++rank) {
    float* mine = values[static_cast<std::size_t>(rank)].data();
    std::fill_n(mine, 1000, 1.0F);
    comm(rank).all_reduce(mine, mine, 1000);
  }
  group.end();
  for (arc::Buffer<float>& each : values) EXPECT_EQ(each[999], kRanks);
}

TEST_F(ClientLibrary, CountsPreparingAgainstTheDeadline) {
  static constexpr milliseconds kTimeout{3000};
  start({}, kTimeout.count());
  form(2);
  float value = 1;  // staged: the daemon is asked for memory first
  daemon_->freeze();
  std::thread later([this] {
    std::this_thread::sleep_for(kTimeout * 9 / 10);
    daemon_->thaw();
  });
  const auto begin = Clock::now();
  EXPECT_EQ(arcAllReduce(&value, &value, 1, arcFloat32, arcSum, comm(0).get(), nullptr),
            arcDeadlineExceeded);
  EXPECT_LT(since(begin), kTimeout * 3 / 2);
  later.join();
}

TEST_F(ClientLibrary, RebuildsOnlyOnceTheDaemonHasLetGoOfTheOldEpoch) {
  start({}, kShort.count());
  form(1);
  daemon_->freeze();
  EXPECT_EQ(arcCommRebuild(comm(0).get()), arcDeadlineExceeded);
  EXPECT_EQ(comm(0).epoch(), 1u);
  daemon_->thaw();
  rebuild();
  EXPECT_EQ(comm(0).epoch(), 2u);
  float value = 1;
  comm(0).all_reduce(&value, &value, 1);
}

TEST_F(ClientLibrary, NoticesADaemonThatDiesAndFindsTheNextOne) {
  start();
  form(2);
  arc::Buffer<std::int64_t> memory(5000);
  memory[4999] = 42;
  arcTicket_t ticket = 0;
  ASSERT_EQ(arcAllReduceAsync(memory.data(), memory.data(), 10, arcInt64, arcSum, comm(0).get(),
                              nullptr, &ticket),
            arcSuccess);
  daemon_->kill();
  const auto begin = Clock::now();
  EXPECT_EQ(arcWait(ticket, 0), arcUnavailable);
  EXPECT_LT(since(begin), milliseconds(100) + kSlack);
  EXPECT_EQ(last().reason, arcReasonDaemonLost);
  std::int64_t value = 1;
  EXPECT_EQ(arcAllReduce(&value, &value, 1, arcInt64, arcSum, comm(1).get(), nullptr),
            arcUnavailable);
  arcResult_t state = arcSuccess;
  EXPECT_EQ(arcCommGetAsyncError(comm(1).get(), &state), arcSuccess);
  EXPECT_EQ(state, arcUnavailable);

  // The next attach waits for the daemon to come back, and the memory comes along with what is in
  // it.
  std::thread waiting([this] { EXPECT_NO_THROW(rebuild()); });
  std::this_thread::sleep_for(milliseconds(200));
  restart();
  waiting.join();
  ASSERT_EQ(memory[4999], 42);
  std::vector<std::int64_t> other(5000, 1);
  std::thread peer([&] { comm(1).all_reduce(other.data(), other.data(), other.size()); });
  comm(0).all_reduce(memory.data(), memory.data(), memory.size());
  peer.join();
  EXPECT_EQ(memory[4999], 43);
  EXPECT_EQ(other[4999], 43);
}

}  // namespace
}  // namespace arcomm::support

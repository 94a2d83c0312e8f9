// The client library in this very process, over a real daemon: what a caller can do to its own
// communicators, tickets, plans and memory, and what the library owes it when the daemon stops.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "client/include/arclient.hpp"
#include "tests/support/daemon_process.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/watchdog.h"

namespace arcomm::support {
namespace {

using Clock = std::chrono::steady_clock;

// Machines that run tests are busy; a promise of 100 ms is judged with this much added.
constexpr milliseconds kSlack{1500};

milliseconds since(Clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
}

arcErrorInfo_t last() {
  arcErrorInfo_t info{};
  info.struct_size = sizeof(info);
  arcGetLastErrorInfo(&info);
  return info;
}

class ClientLibrary : public ::testing::Test {
 protected:
  void start(DaemonProcess::Options options = {}, std::uint64_t timeout_ms = 10000) {
    options.folder = folder_.path();
    daemon_ = DaemonProcess::start(options);
    ASSERT_NE(daemon_, nullptr);
    if (session_) return;
    runtime_dir_ = daemon_->runtime_dir();
    arcConfig_t config = ARC_CONFIG_INITIALIZER;
    config.runtime_dir = runtime_dir_.c_str();
    config.timeout_ms = timeout_ms;
    session_ = std::make_unique<arc::Session>(config);
  }
  void TearDown() override {
    comms_.clear();
    session_.reset();
    if (daemon_ && daemon_->running()) daemon_->stop();
  }
  void restart() {
    daemon_.reset();
    start();
  }
  // All ranks of one communicator in this process.
  void form(int ranks) {
    comms_ = std::vector<arc::Communicator>(static_cast<std::size_t>(ranks));
    const arcUniqueId id = arc::unique_id();
    arc::Group group;
    for (int rank = 0; rank < ranks; ++rank) {
      arc::check(arcCommInitRank(comm(rank).out(), ranks, id, rank));
    }
    group.end();
  }
  void rebuild() {
    arc::Group group;
    for (arc::Communicator& each : comms_) each.rebuild();
    group.end();
  }
  arc::Communicator& comm(int rank) { return comms_[static_cast<std::size_t>(rank)]; }

  ScratchFolder folder_;
  std::string runtime_dir_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<arc::Session> session_;
  std::vector<arc::Communicator> comms_;
  Watchdog watchdog_{"client_library", std::chrono::seconds(120)};
};

std::int64_t element(int rank, std::size_t i) {
  return static_cast<std::int64_t>(i) * 3 + rank;
}
std::int64_t sum_of(int ranks, std::size_t i) {
  return static_cast<std::int64_t>(i) * 3 * ranks + ranks * (ranks - 1) / 2;
}

// Even ranks own daemon memory, odd ones use the heap; every third rank receives elsewhere.
struct RankMemory {
  RankMemory(int rank, std::size_t count) : heap(count), out(count) {
    if (rank % 2 == 0) shared = arc::Buffer<std::int64_t>(count);
    send = rank % 2 == 0 ? shared.data() : heap.data();
    recv = rank % 3 == 2 ? out.data() : send;
    for (std::size_t i = 0; i < count; ++i) send[i] = element(rank, i);
  }
  arc::Buffer<std::int64_t> shared;
  std::vector<std::int64_t> heap, out;
  std::int64_t* send = nullptr;
  std::int64_t* recv = nullptr;
};

TEST_F(ClientLibrary, CutsLargeOperationsAlikeHoweverEachRankHoldsItsMemory) {
  DaemonProcess::Options options;
  options.settings["op.segment_bytes"] = "65536";
  start(options);
  constexpr int kRanks = 4;
  form(kRanks);
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{8192}, std::size_t{8193}, std::size_t{100'003}}) {
    std::vector<std::unique_ptr<RankMemory>> memory;
    for (int rank = 0; rank < kRanks; ++rank)
      memory.push_back(std::make_unique<RankMemory>(rank, count));
    arc::Group group;
    for (int rank = 0; rank < kRanks; ++rank) {
      RankMemory& mine = *memory[static_cast<std::size_t>(rank)];
      comm(rank).all_reduce(mine.send, mine.recv, count);
    }
    group.end();
    for (const auto& mine : memory) {
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(mine->recv[i], sum_of(kRanks, i)) << count << " " << i;
    }
  }
}

TEST_F(ClientLibrary, LetsOneThreadSubmitMoreThanTheDaemonHoldsAtOnce) {
  DaemonProcess::Options options;
  options.settings["quota.in_flight"] = "16";
  start(options);
  constexpr int kRanks = 4;
  constexpr int kOperations = 100;
  form(kRanks);
  std::vector<int> values(kRanks * kOperations, 1);
  std::vector<arc::Ticket> tickets;
  for (int rank = 0; rank < kRanks;
       ++rank) {  // every operation of rank 0 before the first of rank 1
    for (int i = 0; i < kOperations; ++i) {
      int* value = &values[static_cast<std::size_t>(rank * kOperations + i)];
      tickets.push_back(comm(rank).all_reduce_async(value, value, 1));
    }
  }
  for (arc::Ticket& ticket : tickets) ticket.wait();
  for (const int value : values) ASSERT_EQ(value, kRanks);
}

TEST_F(ClientLibrary, ServesAThreadPerRank) {
  start();
  constexpr int kRanks = 4;
  form(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([this, rank] {
      for (std::size_t round = 0; round < 300; ++round) {
        const std::size_t count = 1 + round * 37 % 2000;
        RankMemory mine(rank, count);
        comm(rank).all_reduce(mine.send, mine.recv, count);
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(mine.recv[i], sum_of(kRanks, i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ClientLibrary, SynchronisesWhenThereIsNothingToReduce) {
  start();
  form(2);
  arc::Ticket early = comm(0).all_reduce_async<float>(nullptr, nullptr, 0);
  EXPECT_FALSE(early.wait_for(milliseconds(50)));
  comm(1).all_reduce<float>(nullptr, nullptr, 0);
  early.wait();
}

TEST_F(ClientLibrary, EndsATicketOnce) {
  start();
  form(1);
  float value = 1;
  arcTicket_t ticket = 0;
  ASSERT_EQ(
      arcAllReduceAsync(&value, &value, 1, arcFloat32, arcSum, comm(0).get(), nullptr, &ticket),
      arcSuccess);
  EXPECT_EQ(arcWait(ticket, 0), arcSuccess);
  EXPECT_EQ(arcWait(ticket, 0), arcNotFound);
  EXPECT_EQ(last().reason, arcReasonUnknownHandle);
  EXPECT_EQ(arcTest(ticket), arcNotFound);
}

TEST_F(ClientLibrary, LeavesATicketValidWhenOnlyTheWaitEnded) {
  start();
  form(2);
  float a = 1, b = 2;
  arcTicket_t ticket = 0;
  ASSERT_EQ(arcAllReduceAsync(&a, &a, 1, arcFloat32, arcSum, comm(0).get(), nullptr, &ticket),
            arcSuccess);
  EXPECT_EQ(arcTest(ticket), arcInProgress);
  EXPECT_EQ(arcWait(ticket, 30), arcDeadlineExceeded);
  EXPECT_EQ(last().reason, arcReasonTimeout);
  EXPECT_EQ(last().seq, UINT64_MAX);
  comm(1).all_reduce(&b, &b, 1);
  EXPECT_EQ(arcWait(ticket, 0), arcSuccess);
  EXPECT_EQ(a, 3);
}

TEST_F(ClientLibrary, SaysWhoWasMissingAtTheDeadline) {
  start({}, 300);
  form(2);
  float value = 1;
  const auto begin = Clock::now();
  EXPECT_EQ(arcAllReduce(&value, &value, 1, arcFloat32, arcSum, comm(0).get(), nullptr),
            arcDeadlineExceeded);
  EXPECT_LT(since(begin), milliseconds(400) + kSlack);
  EXPECT_EQ(last().reason, arcReasonTimeout);
  EXPECT_EQ(last().rank, 1);
  EXPECT_EQ(last().seq, 0u);
  arcResult_t state = arcSuccess;
  EXPECT_EQ(arcCommGetAsyncError(comm(0).get(), &state), arcSuccess);
  EXPECT_NE(state, arcSuccess);
  rebuild();
  EXPECT_EQ(comm(0).epoch(), 2u);
  std::vector<float> values(2, 1);
  arc::Group group;
  for (int rank = 0; rank < 2; ++rank) {
    comm(rank).all_reduce(&values[static_cast<std::size_t>(rank)],
                          &values[static_cast<std::size_t>(rank)], 1);
  }
  group.end();
  EXPECT_EQ(values[0], 2);
}

TEST_F(ClientLibrary, RefusesToWaitForAGroupThatIsOpen) {
  start();
  form(1);
  float value = 1;
  arcTicket_t ticket = 0;
  ASSERT_EQ(arcGroupStart(), arcSuccess);
  ASSERT_EQ(
      arcAllReduceAsync(&value, &value, 1, arcFloat32, arcSum, comm(0).get(), nullptr, &ticket),
      arcSuccess);
  EXPECT_EQ(arcWait(ticket, 0), arcFailedPrecondition);
  ASSERT_EQ(arcGroupEnd(), arcSuccess);
  EXPECT_EQ(arcWait(ticket, 0), arcSuccess);
}

TEST_F(ClientLibrary, EndsOpenTicketsWithTheCommunicator) {
  start();
  form(2);
  float value = 1;
  arcTicket_t ticket = 0;
  arcComm_t handle = comm(0).get();
  ASSERT_EQ(arcAllReduceAsync(&value, &value, 1, arcFloat32, arcSum, handle, nullptr, &ticket),
            arcSuccess);
  comm(0).abort();
  EXPECT_EQ(arcWait(ticket, 1000), arcAborted);
  EXPECT_EQ(arcAllReduce(&value, &value, 1, arcFloat32, arcSum, handle, nullptr), arcNotFound);
  EXPECT_EQ(arcAllReduce(&value, &value, 1, arcFloat32, arcSum, comm(1).get(), nullptr),
            arcAborted);
}

TEST_F(ClientLibrary, StartsPlansOverEveryKindOfMemory) {
  DaemonProcess::Options options;
  options.settings["op.segment_bytes"] = "65536";
  start(options);
  constexpr int kRanks = 3;
  form(kRanks);
  for (const std::size_t count : {std::size_t{0}, std::size_t{1000}, std::size_t{20'000}}) {
    std::vector<std::unique_ptr<RankMemory>> memory;
    std::vector<arc::Plan> plans;
    for (int rank = 0; rank < kRanks; ++rank) {
      memory.push_back(std::make_unique<RankMemory>(rank, count));
      plans.emplace_back(comm(rank), memory.back()->send, memory.back()->recv, count);
    }
    for (int round = 0; round < 3; ++round) {
      for (int rank = 0; rank < kRanks; ++rank) {
        RankMemory& mine = *memory[static_cast<std::size_t>(rank)];
        for (std::size_t i = 0; i < count; ++i) mine.send[i] = element(rank, i);
      }
      for (arc::Plan& plan : plans) plan.start();
      for (arc::Plan& plan : plans) plan.wait();
      for (const auto& mine : memory) {
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(mine->recv[i], sum_of(kRanks, i));
      }
    }
  }
}

TEST_F(ClientLibrary, StartsAPlanOnceAtATime) {
  start();
  form(2);
  float value = 1;
  arcPlan_t plan = nullptr;
  ASSERT_EQ(arcPlanCreateAllReduce(&plan, &value, &value, 1, arcFloat32, arcSum, comm(0).get()),
            arcSuccess);
  EXPECT_EQ(arcPlanWait(plan, 0), arcFailedPrecondition);
  ASSERT_EQ(arcPlanStart(plan, nullptr), arcSuccess);
  EXPECT_EQ(arcPlanStart(plan, nullptr), arcFailedPrecondition);
  EXPECT_EQ(arcPlanDestroy(plan), arcFailedPrecondition);
  float other = 2;
  comm(1).all_reduce(&other, &other, 1);
  EXPECT_EQ(arcPlanWait(plan, 0), arcSuccess);
  EXPECT_EQ(value, 3);
  EXPECT_EQ(arcPlanDestroy(plan), arcSuccess);
  EXPECT_EQ(arcPlanDestroy(plan), arcNotFound);
}

TEST_F(ClientLibrary, KeepsMemoryThatAnOperationUses) {
  start();
  form(2);
  arc::Buffer<float> memory(1000);
  arc::Ticket ticket = comm(0).all_reduce_async(memory.data(), memory.data(), 1000);
  EXPECT_EQ(arcMemFree(memory.data()), arcFailedPrecondition);
  std::vector<float> other(1000);
  comm(1).all_reduce(other.data(), other.data(), 1000);
  ticket.wait();
}

TEST_F(ClientLibrary, SharesAMappingOfASealedMemfdAsItIs) {
  start();
  form(1);
  constexpr std::size_t kBytes = 1 << 20;
  const int fd = ::memfd_create("arcomm-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(fd, kBytes), 0);
  ASSERT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* inside = static_cast<float*>(memory) + 1027;
  ASSERT_EQ(arcMemRegister(inside, 4000), arcSuccess) << arcGetLastError(nullptr);
  EXPECT_EQ(arcMemRegister(inside + 10, 4), arcAlreadyExists);
  inside[0] = 7;
  comm(0).all_reduce(inside, inside, 1000);
  EXPECT_EQ(inside[0], 7);
  EXPECT_EQ(arcMemFree(inside), arcNotFound);
  EXPECT_EQ(arcMemDeregister(inside), arcSuccess);
  EXPECT_EQ(arcMemDeregister(inside), arcNotFound);
  ::munmap(memory, kBytes);
  ::close(fd);
}

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
  start({}, 400);
  form(2);
  arc::Buffer<float> values(1000);  // the daemon is not asked for staging memory
  daemon_->freeze();
  const auto begin = Clock::now();
  EXPECT_EQ(
      arcAllReduce(values.data(), values.data(), 1000, arcFloat32, arcSum, comm(0).get(), nullptr),
      arcDeadlineExceeded);
  EXPECT_LT(since(begin), milliseconds(500) + kSlack);
  EXPECT_EQ(
      arcAllReduce(values.data(), values.data(), 1000, arcFloat32, arcSum, comm(0).get(), nullptr),
      arcFailedPrecondition)
      << "the sequence has a gap: only a rebuild helps";
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

TEST_F(ClientLibrary, RefusesToMatchPartsOfDifferentOperations) {
  DaemonProcess::Options options;
  options.settings["op.segment_bytes"] = "65536";
  start(options);
  form(2);
  arc::Buffer<float> large(65536), small(32768);  // four parts and two, of equal size
  arcTicket_t tickets[2] = {};
  ASSERT_EQ(arcAllReduceAsync(large.data(), large.data(), large.size(), arcFloat32, arcSum,
                              comm(0).get(), nullptr, &tickets[0]),
            arcSuccess);
  ASSERT_EQ(arcAllReduceAsync(small.data(), small.data(), small.size(), arcFloat32, arcSum,
                              comm(1).get(), nullptr, &tickets[1]),
            arcSuccess);
  const auto submitted = Clock::now();
  for (const arcTicket_t ticket : tickets) {
    EXPECT_NE(arcWait(ticket, 0), arcSuccess);
    EXPECT_EQ(last().reason, arcReasonMismatch) << arcGetLastError(nullptr);
  }
  EXPECT_LT(since(submitted), milliseconds(3000))
      << "parts without a peer lasted until the deadline";
  // The ranks have used up different numbers of requests: nothing may be matched before a rebuild.
  for (int rank = 0; rank < 2; ++rank) {
    const auto begin = Clock::now();
    float value = 1;
    EXPECT_EQ(arcAllReduce(&value, &value, 1, arcFloat32, arcSum, comm(rank).get(), nullptr),
              arcFailedPrecondition);
    EXPECT_EQ(last().reason, arcReasonRevoked);
    EXPECT_LT(since(begin), kSlack);
  }
  rebuild();
  std::thread peer([this] {
    float value = 1;
    comm(1).all_reduce(&value, &value, 1);
  });
  float value = 1;
  comm(0).all_reduce(&value, &value, 1);
  peer.join();
  EXPECT_EQ(value, 2);
}

TEST_F(ClientLibrary, EndsTheCommunicatorOfAnOperationThatNeverLeft) {
  DaemonProcess::Options options;
  options.settings["rings.slots"] = "16";
  start(options, 300);
  form(2);
  std::vector<float> values(40, 1);
  std::vector<arcTicket_t> tickets(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(arcAllReduceAsync(&values[i], &values[i], 1, arcFloat32, arcSum, comm(0).get(),
                                nullptr, &tickets[i]),
              arcSuccess);
  }
  std::this_thread::sleep_for(milliseconds(400));
  for (const arcTicket_t ticket : tickets) EXPECT_NE(arcWait(ticket, 0), arcSuccess);
  float value = 1;
  const auto begin = Clock::now();
  EXPECT_EQ(arcAllReduce(&value, &value, 1, arcFloat32, arcSum, comm(0).get(), nullptr),
            arcFailedPrecondition);
  EXPECT_LT(since(begin), milliseconds(200));
  EXPECT_EQ(arcAllReduce(&value, &value, 1, arcFloat32, arcSum, comm(1).get(), nullptr), arcAborted)
      << "the peer was not told";
  EXPECT_EQ(value, 1);
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

TEST_F(ClientLibrary, WaitsForAPlanOnlyAsLongAsAsked) {
  start({}, 3000);
  form(1);
  float value = 1;
  arcPlan_t plan = nullptr;
  ASSERT_EQ(arcPlanCreateAllReduce(&plan, &value, &value, 1, arcFloat32, arcSum, comm(0).get()),
            arcSuccess);
  daemon_->freeze();
  // Its first start asks the daemon for staging memory, and waits for the answer.
  std::thread starting([plan] {
    EXPECT_EQ(arcPlanStart(plan, nullptr), arcSuccess);
    EXPECT_EQ(arcPlanWait(plan, 0), arcSuccess);
    EXPECT_EQ(arcPlanDestroy(plan), arcSuccess);
  });
  std::this_thread::sleep_for(milliseconds(200));
  const auto begin = Clock::now();
  EXPECT_EQ(arcPlanWait(plan, 10), arcFailedPrecondition) << "it is not started yet";
  EXPECT_EQ(arcPlanDestroy(plan), arcFailedPrecondition);
  EXPECT_LT(since(begin), milliseconds(1000));
  daemon_->thaw();
  starting.join();
}

TEST_F(ClientLibrary, RebuildsOnlyOnceTheDaemonHasLetGoOfTheOldEpoch) {
  start({}, 400);
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

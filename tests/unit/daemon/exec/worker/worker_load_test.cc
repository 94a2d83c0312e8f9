// Plans, every type, fairness, draining, and thousands of cycles.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/processes/busy_processes.h"
#include "tests/support/thread_cpu_clock.h"
#include "tests/unit/daemon/exec/worker/worker_fixture.h"

namespace arcomm::test {
namespace {

using std::chrono::seconds;

class WorkerLoad : public WorkerTest {
 protected:
  static void expect_ok(Client& rank) {
    const auto completion = rank.next();
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(name_of(code_of(*completion)), name_of(ErrorCode::Ok)) << completion->detail;
  }
  static std::size_t open_descriptors() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
      ++count;
    return count;
  }
  static std::size_t mappings() {
    std::ifstream maps("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);) ++count;
    return count;
  }
};

template <typename T>
void expect_sum(const std::vector<Client*>& ranks, const std::vector<SharedBytes*>& memories,
                DType dtype, std::size_t count) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (std::size_t i = 0; i < count; ++i) memories[r]->as<T>()[i] = static_cast<T>(r + i % 5);
  }
  for (Client* rank : ranks) rank->call(count, dtype);
  for (Client* rank : ranks) {
    const auto completion = rank->next();
    ASSERT_TRUE(completion.has_value());
    ASSERT_EQ(code_of(*completion), ErrorCode::Ok) << completion->detail;
  }
  const std::size_t base = ranks.size() * (ranks.size() - 1) / 2;
  for (SharedBytes* memory : memories) {
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(memory->as<T>(memory->bytes / 2)[i], static_cast<T>(base + ranks.size() * (i % 5)))
          << text_of(dtype) << " element " << i;
    }
  }
}

TEST_F(WorkerLoad, SumsEveryTypeAtSmallAndTiledSizes) {
  constexpr std::size_t kBytes = 4 << 20;
  std::vector<Client*> ranks;
  std::vector<SharedBytes*> memories;
  for (int i = 0; i < 3; ++i) {
    Client& one = client();
    memories.push_back(&one.memory(2 * kBytes));
    one.recv_offset = kBytes;
    ranks.push_back(&one);
  }
  form(ranks);
  for (const std::size_t bytes : {std::size_t{24}, kBytes - 64}) {
    expect_sum<float>(ranks, memories, DType::Float32, bytes / 4);
    expect_sum<double>(ranks, memories, DType::Float64, bytes / 8);
    expect_sum<std::int8_t>(ranks, memories, DType::Int8, bytes);
    expect_sum<std::uint8_t>(ranks, memories, DType::Uint8, bytes);
    expect_sum<std::int32_t>(ranks, memories, DType::Int32, bytes / 4);
    expect_sum<std::uint32_t>(ranks, memories, DType::Uint32, bytes / 4);
    expect_sum<std::int64_t>(ranks, memories, DType::Int64, bytes / 8);
    expect_sum<std::uint64_t>(ranks, memories, DType::Uint64, bytes / 8);
  }
  // 16-bit floats: all ones, in both formats exact.
  for (const auto& [dtype, one, three] :
       {std::tuple(DType::Float16, 0x3c00, 0x4200), {DType::BFloat16, 0x3f80, 0x4040}}) {
    for (SharedBytes* memory : memories) {
      for (int i = 0; i < 100; ++i)
        memory->as<std::uint16_t>()[i] = static_cast<std::uint16_t>(one);
    }
    for (Client* rank : ranks) rank->call(100, dtype);
    for (Client* rank : ranks) expect_ok(*rank);
    for (SharedBytes* memory : memories) {
      for (int i = 0; i < 100; ++i)
        ASSERT_EQ(memory->as<std::uint16_t>(kBytes)[i], three) << text_of(dtype);
    }
  }
}

TEST_F(WorkerLoad, AnEmptyOperationEndsWhenAllHaveComeAndNotBefore) {
  auto ranks = group(2);
  ring::WorkRequest empty = ranks[0]->request(0);
  empty.send_buffer = empty.recv_buffer = 0;
  ranks[0]->submit(empty);
  EXPECT_FALSE(ranks[0]->next(milliseconds(20)).has_value());
  ranks[1]->call(0);
  for (Client* rank : ranks) expect_ok(*rank);
}

TEST_F(WorkerLoad, OperationsOfOneCommunicatorRunInOrderHoweverFarARankIsAhead) {
  auto ranks = group(2, 4096, 64);
  for (int i = 0; i < 60; ++i) ranks[0]->call(8);
  for (int i = 0; i < 60; ++i) ranks[1]->call(8);
  for (Client* rank : ranks) {
    for (std::uint64_t i = 0; i < 60; ++i) {
      const auto completion = rank->next();
      ASSERT_TRUE(completion.has_value());
      EXPECT_EQ(code_of(*completion), ErrorCode::Ok);
      EXPECT_EQ(completion->seq, i);
    }
  }
}

TEST_F(WorkerLoad, APlanRunsAgainAndAgainAndHoldsItsBuffers) {
  auto ranks = group(2);
  std::vector<PlanId> plans;
  for (Client* rank : ranks) {
    PlanSpec spec{.member = rank->member,
                  .send_buffer = rank->buffer,
                  .recv_buffer = rank->buffer,
                  .recv_offset_bytes = 4096,
                  .spec = all_reduce_of(16, DType::Int32)};
    const Result<PlanId> plan =
        await<PlanId>([&](auto done) { worker_->add_plan(rank->id(), spec, done); });
    ASSERT_TRUE(plan.ok()) << plan.error().to_string();
    plans.push_back(*plan);
  }
  const auto start_plan = [](Client& rank, PlanId plan) {
    ring::WorkRequest request;
    request.member = rank.member.bits();
    request.seq = rank.seq;
    request.plan = plan.bits();
    rank.submit(request);
  };
  for (int round = 0; round < 100; ++round) {
    for (std::size_t r = 0; r < 2; ++r) start_plan(*ranks[r], plans[r]);
    for (Client* rank : ranks) expect_ok(*rank);
  }
  const auto remove_buffer = [&] {
    return await<void>(
        [&](auto done) { worker_->remove_buffer(ranks[0]->id(), ranks[0]->buffer, done); });
  };
  EXPECT_EQ(remove_buffer().error().code, ErrorCode::FailedPrecondition);
  ASSERT_TRUE(
      await<void>([&](auto done) { worker_->remove_plan(ranks[0]->id(), plans[0], done); }).ok());
  start_plan(*ranks[0], plans[0]);
  const auto stale = ranks[0]->next();
  ASSERT_TRUE(stale.has_value());
  EXPECT_EQ(reason_of(*stale), Reason::UnknownHandle);
  EXPECT_TRUE(remove_buffer().ok());
}

TEST_F(WorkerLoad, APlanOverARangeThatLeavesItsBufferIsRefused) {
  auto ranks = group(2);
  PlanSpec spec{.member = ranks[0]->member,
                .send_buffer = ranks[0]->buffer,
                .recv_buffer = ranks[0]->buffer,
                .recv_offset_bytes = 4096,
                .spec = all_reduce_of(4096, DType::Int32)};
  const Result<PlanId> plan =
      await<PlanId>([&](auto done) { worker_->add_plan(ranks[0]->id(), spec, done); });
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().reason, Reason::OutOfBounds);
}

TEST_F(WorkerLoad, ASmallOperationDoesNotWaitForAHugeOneOfAnotherTenant) {
  constexpr std::size_t kBytes = 192 << 20;
  auto huge = group(2, kBytes);
  auto small = group(2);
  for (Client* rank : huge) rank->call(kBytes / 4);
  while (inspect().operations_pending < 2) std::this_thread::yield();
  int done_meanwhile = 0;
  std::uint64_t slowest_ns = 0;
  while (!huge[0]->next(std::chrono::nanoseconds(0)).has_value() && done_meanwhile < 100'000) {
    for (Client* rank : small) rank->call(256);
    for (Client* rank : small) {
      const auto completion = rank->next();
      ASSERT_TRUE(completion.has_value());
      slowest_ns = std::max(slowest_ns, completion->elapsed_ns);
    }
    ++done_meanwhile;
  }
  expect_ok(*huge[1]);
  RecordProperty("small operations meanwhile", done_meanwhile);
  std::printf("%d small operations during the huge one, slowest %.0f us inside the worker\n",
              done_meanwhile, static_cast<double>(slowest_ns) / 1000);
  EXPECT_GE(done_meanwhile, 10);
}

// Which of the two the worker looks at first changes from turn to turn, so there are many rounds.
TEST_F(WorkerLoad, AFewRequestsOfOneTenantAreReadBeforeTheManyOfAnother) {
  Client& flood = *group(1).front();
  Client& calm = client();
  calm.memory(8192);
  calm.recv_offset = 4096;
  form({&calm}, 2);
  constexpr int kRounds = 20, kMany = 40;
  for (int round = 0; round < kRounds; ++round) {
    inspect();  // has looked at both rings, and found nothing
    std::promise<void> held, go;
    worker_->inspect([&](const Result<WorkerSnapshot>&) {
      held.set_value();
      go.get_future().wait_for(kPatience);
    });
    ASSERT_EQ(held.get_future().wait_for(kPatience), std::future_status::ready);
    for (int i = 0; i < kMany; ++i) flood.call(64);
    calm.call(64);
    go.set_value();
    expect_ok(calm);
    for (int i = 0; i < kMany; ++i) expect_ok(flood);
    inspect();
    const std::vector<FlightRecord> records = recorder_->snapshot(kMany + 1);
    ASSERT_EQ(records.size(), std::size_t{kMany + 1});
    const auto place = std::find_if(records.begin(), records.end(),
                                    [](const FlightRecord& record) { return record.pid == 801; });
    ASSERT_NE(place, records.end());
    EXPECT_LE(place - records.begin(), 2) << "round " << round;
  }
}

TEST_F(WorkerLoad, DrainingEndsWhatWasBegunAndRefusesWhatIsNew) {
  auto ranks = group(2);
  auto others = group(2);
  ranks[0]->call(4);
  while (inspect().operations_pending < 1) std::this_thread::yield();
  auto drained = std::make_shared<std::promise<void>>();
  std::future<void> when = drained->get_future();
  worker_->drain(seconds(20), [drained](const Result<void>&) { drained->set_value(); });
  while (others[0]->state() != ring::SessionState::ShuttingDown) std::this_thread::yield();
  others[0]->call(4);
  const auto refused = others[0]->next();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(code_of(*refused), ErrorCode::Unavailable);
  EXPECT_EQ(reason_of(*refused), Reason::ShuttingDown);
  EXPECT_EQ(when.wait_for(milliseconds(20)), std::future_status::timeout);
  ranks[1]->call(4);
  for (Client* rank : ranks) expect_ok(*rank);
  EXPECT_EQ(when.wait_for(kPatience), std::future_status::ready);
}

TEST_F(WorkerLoad, DrainingFailsAtItsDeadlineWhatDoesNotEnd) {
  auto ranks = group(2);
  ranks[0]->call(4);
  while (inspect().operations_pending < 1) std::this_thread::yield();
  EXPECT_TRUE(await<void>([&](auto done) { worker_->drain(milliseconds(30), done); }).ok());
  const auto failed = ranks[0]->next();
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(reason_of(*failed), Reason::ShuttingDown);
}

TEST_F(WorkerLoad, AStoppedWorkerAnswersThatItHasStopped) {
  auto ranks = group(2);
  ranks[0]->call(4);
  worker_->stop();
  thread_.join();
  const auto inspected = await<WorkerSnapshot>([&](auto done) { worker_->inspect(done); });
  ASSERT_FALSE(inspected.ok());
  EXPECT_EQ(inspected.error().code, ErrorCode::Unavailable);
  EXPECT_EQ(ranks[0]->state(), ring::SessionState::Closed);
}

TEST_F(WorkerLoad, SaysWhoKeepsTheOthersWaiting) {
  auto ranks = group(3);
  for (Client* rank : ranks) rank->call(4);
  for (Client* rank : ranks) expect_ok(*rank);
  ranks[0]->call(4);
  ranks[2]->call(4);
  while (inspect().operations_pending < 2) std::this_thread::yield();
  const WorkerSnapshot shot = inspect();
  ASSERT_EQ(shot.communicators.size(), 1u);
  const std::string& text = shot.communicators[0].diagnosis;
  EXPECT_EQ(
      text.rfind("rank 1 (pid 801, next seq 1) has not called; ranks 0,2 wait at seq 1 since ", 0),
      0u)
      << text;
  EXPECT_EQ(shot.communicators[0].ranks[0].waiting.rfind("seq 1 since ", 0), 0u);
  EXPECT_EQ(shot.communicators[0].ranks[1].waiting, "");
  EXPECT_EQ(shot.sessions.size(), 3u);
  EXPECT_EQ(shot.sessions[0].in_flight, 1u);
}

TEST_F(WorkerLoad, RecordsEveryStepOfAnOperation) {
  auto ranks = group(2);
  for (Client* rank : ranks) rank->call(4);
  for (Client* rank : ranks) expect_ok(*rank);
  inspect();  // the worker has turned once more
  const std::vector<FlightRecord> records = recorder_->snapshot();
  ASSERT_EQ(records.size(), 2u);
  for (const FlightRecord& record : records) {
    EXPECT_EQ(record.code, ErrorCode::Ok);
    EXPECT_EQ(record.send_count, 4u);
    EXPECT_GT(record.submitted_ns, 0u);
    EXPECT_GE(record.admitted_ns, record.submitted_ns);
    EXPECT_GE(record.matched_ns, record.admitted_ns);
    EXPECT_GE(record.launched_ns, record.matched_ns);
    EXPECT_GE(record.done_ns, record.launched_ns);
  }
  EXPECT_EQ(metrics_->operations[ErrorCode::Ok].value(), 2u);
  EXPECT_EQ(metrics_->operations_in_flight.value(), 0);
}

// The metrics belong to the daemon: GPUs' operations stood in the host's row of `arctl status`,
// too.
TEST_F(WorkerLoad, ReportsOnlyTheBytesThatItReducedItself) {
  metrics_->count_operation(ErrorCode::Ok, 1000, 1 << 20);  // another worker's
  auto ranks = group(2);
  for (Client* rank : ranks) rank->call(4);
  for (Client* rank : ranks) expect_ok(*rank);
  EXPECT_EQ(inspect().bytes_reduced, 2 * 4 * sizeof(float));
}

TEST_F(WorkerLoad, ThousandsOfSessionsLeaveNothingBehind) {
  const auto cycle = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      auto ranks = group(2, 4096, 8);
      for (Client* rank : ranks) rank->call(4);
      for (Client* rank : ranks) expect_ok(*rank);
      for (Client* rank : ranks) ASSERT_TRUE(close(*rank, Reason::None, "done").ok());
      clients_.clear();
    }
  };
  cycle(50);  // pools and the allocator have taken what they need
  const std::size_t descriptors = open_descriptors(), maps = mappings();
#ifdef ARCOMM_SANITIZED
  cycle(300);
#else
  cycle(5000);
#endif
  EXPECT_EQ(open_descriptors(), descriptors);
  // Memory is let go of by a thread of its own, which may be behind.
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (mappings() > maps + 16 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_LE(mappings(), maps + 16);
  const WorkerSnapshot shot = inspect();
  EXPECT_TRUE(shot.sessions.empty());
  EXPECT_TRUE(shot.communicators.empty());
  EXPECT_EQ(shot.operations_pending, 0u);
}

TEST_F(WorkerLoad, TellsItsClientsThatOthersUseItsCoreAndWorksOn) {
  Settings spins;
  spins.wait.spin_us = 1'000'000;  // it stays on its core until it is driven away
  start(spins);
  auto ranks = group(2);
  const support::BusyProcesses busy;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  bool told = false;
  while (!told && std::chrono::steady_clock::now() < until) {
    for (Client* rank : ranks) rank->call(16);
    for (Client* rank : ranks) expect_ok(*rank);
    told = ranks[0]->control().core_is_shared.load() != 0 &&
           ranks[1]->control().core_is_shared.load() != 0;
  }
  EXPECT_TRUE(told);
}

TEST_F(WorkerLoad, AnIdleWorkerSleeps) {
  auto ranks = group(4);
  std::this_thread::sleep_for(milliseconds(100));
  const support::ThreadCpuClock worker(thread_.native_handle());
  const auto before = worker.now();
  std::this_thread::sleep_for(seconds(1));
  EXPECT_LT(worker.now() - before, milliseconds(10)) << "1% of a core";
}

}  // namespace
}  // namespace arcomm::test

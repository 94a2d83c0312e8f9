// Operations in one process: many at once, open tickets, groups, and parts that do not belong
// together.
#include <pthread.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/integration/client_library/client_library.h"

namespace arcomm::support {
namespace {

TEST_F(ClientLibrary, CutsLargeOperationsAlikeHoweverEachRankHoldsItsMemory) {
  DaemonProcess::Options options;
  options.settings["op.segment_bytes"] = "65536";
  start(options);
  constexpr int kRanks = 4;
  form(kRanks);
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{8192}, std::size_t{8193}, std::size_t{100'003}}) {
    std::vector<std::unique_ptr<RankMemory>> memory;
    memory.reserve(kRanks);
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

TEST_F(ClientLibrary, TellsWhichCodecACallGetsByItsConfigItsCommunicatorOrAnErrorClass) {
  start();
  const arcAllReduceConfig_t q6 = arc::with_codec(arcCodecQ6);
  arcCommConfig_t config = ARC_COMM_CONFIG_INITIALIZER;
  config.all_reduce = &q6;
  comms_ = std::vector<arc::Communicator>(2);
  const arcUniqueId id = arc::unique_id();
  arc::Group group;
  for (int rank = 0; rank < 2; ++rank)
    arc::check(arcCommInitRankConfig(comm(rank).out(), 2, id, rank, &config));
  group.end();
  const auto codec_of = [&](const arcAllReduceConfig_t* asked) {
    arcCodec_t codec = arcCodecNone;
    EXPECT_EQ(arcCommGetCodec(comm(0).get(), 1 << 20, arcFloat32, arcSum, asked, &codec),
              arcSuccess)
        << arcGetLastError(nullptr);
    return codec;
  };
  const arcAllReduceConfig_t none = arc::with_codec(arcCodecNone);
  const arcAllReduceConfig_t q4 = arc::with_codec(arcCodecQ4);
  const arcAllReduceConfig_t of_class = arc::with_least_snr(10);
  EXPECT_EQ(codec_of(nullptr), arcCodecQ6);
  EXPECT_EQ(codec_of(&none), arcCodecNone);
  EXPECT_EQ(codec_of(&q4), arcCodecQ4);
  EXPECT_EQ(codec_of(&of_class), arcCodecNone) << "nothing travels on one host";
  arcCodec_t codec = arcCodecNone;
  EXPECT_EQ(arcCommGetCodec(comm(0).get(), 1, arcInt32, arcSum, nullptr, &codec),
            arcInvalidArgument);
  EXPECT_NE(std::string(arcGetLastError(nullptr)).find("the communicator's default"),
            std::string::npos);
}

// The library keeps what a thread found last for that thread: destructors of a thread's keys run
// when that is gone, as handlers at exit do on the main thread.
TEST_F(ClientLibrary, ServesCallsOfAThreadThatIsEnding) {
  start();
  arc::Communicator first, second;
  for (arc::Communicator* each : {&first, &second})
    arc::check(arcCommInitRank(each->out(), 1, arc::unique_id(), 0));
  struct Work {
    arc::Communicator *first, *second;
    int value = 5, results[3] = {};
  } work{&first, &second};
  pthread_key_t key{};
  ASSERT_EQ(::pthread_key_create(&key,
                                 [](void* argument) {
                                   auto* const its = static_cast<Work*>(argument);
                                   its->second->all_reduce(&its->value, &its->results[1], 1);
                                   its->first->all_reduce(&its->value, &its->results[2], 1);
                                 }),
            0);
  std::thread([&] {
    first.all_reduce(&work.value, &work.results[0], 1);
    ::pthread_setspecific(key, &work);
  }).join();
  for (const int result : work.results) EXPECT_EQ(result, 5);
  int again = 0;
  first.all_reduce(&work.value, &again, 1);
  EXPECT_EQ(again, 5);
  ::pthread_key_delete(key);
}

TEST_F(ClientLibrary, LetsOneThreadSubmitMoreThanTheDaemonHoldsAtOnce) {
  DaemonProcess::Options options;
  options.settings["quota.in_flight"] = "16";
  start(options);
  constexpr int kRanks = 4;
  constexpr std::size_t kOperations = 100;
  form(kRanks);
  std::vector<int> values(kRanks * kOperations, 1);
  std::vector<arc::Ticket> tickets;
  for (int rank = 0; rank < kRanks;
       ++rank) {  // every operation of rank 0 before the first of rank 1
    for (std::size_t i = 0; i < kOperations; ++i) {
      int* value = &values[static_cast<std::size_t>(rank) * kOperations + i];
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
  threads.reserve(kRanks);
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

TEST_F(ClientLibrary, RefusesAStreamOnTheHost) {
  start();
  form(1);
  float value = 1;
  arc::Plan plan(comm(0), &value, &value, 1);
  int no_stream = 0;
  const auto expect_refused = [](const auto& call) {
    try {
      call();
      ADD_FAILURE() << "a stream was taken";
    } catch (const arc::Error& why) {
      EXPECT_EQ(why.code(), arcInvalidArgument) << why.what();
      EXPECT_EQ(why.reason(), arcReasonBadValue) << why.what();
      EXPECT_NE(std::string(why.what()).find("stream"), std::string::npos) << why.what();
    }
  };
  expect_refused([&] { comm(0).all_reduce(&value, &value, 1, arcSum, &no_stream); });
  expect_refused([&] { comm(0).all_reduce(&value, &value, 1, arcFloat32, arcSum, &no_stream); });
  expect_refused([&] { plan.start(&no_stream); });
  // Nothing of it was begun.
  plan.start();
  plan.wait();
  comm(0).all_reduce(&value, &value, 1, arcSum, nullptr);
  EXPECT_EQ(value, 1);
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
  start({}, kShort.count());
  form(2);
  float value = 1;
  const auto begin = Clock::now();
  EXPECT_EQ(arcAllReduce(&value, &value, 1, arcFloat32, arcSum, comm(0).get(), nullptr),
            arcDeadlineExceeded);
  EXPECT_LT(since(begin), kShort + milliseconds(100) + kSlack);
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

TEST_F(ClientLibrary, TakesForeverForALongTimeAndNotForNone) {
  for (const std::uint64_t forever : {UINT64_MAX, std::uint64_t{10'000'000'000'000}}) {
    start({}, forever);
    form(2);
    std::vector<float> values(2, 1);
    arc::Group group;
    for (int rank = 0; rank < 2; ++rank) {
      float* mine = &values[static_cast<std::size_t>(rank)];
      comm(rank).all_reduce(mine, mine, 1);
    }
    group.end();
    EXPECT_EQ(values[0], 2);

    float a = 1, b = 2;
    arcPlan_t plan = nullptr;
    ASSERT_EQ(arcPlanCreateAllReduce(&plan, &a, &a, 1, arcFloat32, arcSum, comm(0).get()),
              arcSuccess);
    ASSERT_EQ(arcPlanStart(plan, nullptr), arcSuccess);
    arc::Ticket peer = comm(1).all_reduce_async(&b, &b, 1);
    EXPECT_EQ(arcPlanWait(plan, forever), arcSuccess) << arcGetLastError(nullptr);
    EXPECT_EQ(a, 3);
    peer.wait();
    EXPECT_EQ(arcPlanDestroy(plan), arcSuccess);

    arcTicket_t ticket = 0;
    ASSERT_EQ(arcAllReduceAsync(&a, &a, 1, arcFloat32, arcSum, comm(0).get(), nullptr, &ticket),
              arcSuccess);
    peer = comm(1).all_reduce_async(&b, &b, 1);
    EXPECT_EQ(arcWait(ticket, forever), arcSuccess) << arcGetLastError(nullptr);
    EXPECT_EQ(a, 6);
    peer.wait();
    comms_.clear();
    session_.reset();
    daemon_->stop();
  }
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
  start(options, kShort.count());
  form(2);
  std::vector<float> values(40, 1);
  std::vector<arcTicket_t> tickets(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(arcAllReduceAsync(&values[i], &values[i], 1, arcFloat32, arcSum, comm(0).get(),
                                nullptr, &tickets[i]),
              arcSuccess);
  }
  std::this_thread::sleep_for(kShort + milliseconds(100));
  for (const arcTicket_t ticket : tickets) EXPECT_NE(arcWait(ticket, 0), arcSuccess);
  float value = 1;
  const auto begin = Clock::now();
  EXPECT_EQ(arcAllReduce(&value, &value, 1, arcFloat32, arcSum, comm(0).get(), nullptr),
            arcFailedPrecondition);
  EXPECT_LT(since(begin), kShort / 2) << "told only by the deadline";
  EXPECT_EQ(arcAllReduce(&value, &value, 1, arcFloat32, arcSum, comm(1).get(), nullptr), arcAborted)
      << "the peer was not told";
  EXPECT_EQ(value, 1);
}

}  // namespace
}  // namespace arcomm::support

// Communicators of GPUs of several nodes whose operations find no room beside each other: all nodes
// run them in one order, whatever the order in which they hear of them.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/daemon/exec/gpu/network/gpu_network_fixture.h"

namespace arcomm::test {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

class GpuNetworkOrder : public GpuNetwork {
 protected:
  // So few SMs that an operation of several lanes is alone on its GPU.
  static constexpr std::uint32_t kFewSms = 13;
  static constexpr std::uint32_t kNoSms = 11;  // for narrow ones: any operation is
  static constexpr std::uint64_t kCount = 100'003;

  struct Group {
    std::vector<std::uint32_t> where;
    std::vector<GpuRank*> ranks;
    std::vector<PlanId> plans;
  };
  Group make(const std::vector<std::uint32_t>& where, milliseconds timeout = seconds(40),
             std::uint64_t count = kCount) {
    Group made{.where = where, .ranks = group(where), .plans = {}};
    EXPECT_EQ(made.ranks.size(), where.size());
    made.plans = plans_for(made.ranks, count, timeout);
    for (std::size_t rank = 0; rank < made.ranks.size(); ++rank) {
      for (std::uint64_t i = 0; i < count; ++i) made.ranks[rank]->send()[i] = element(rank, i, 0);
    }
    return made;
  }
  std::vector<Group> make_many() {
    return {make({0, 1}), make({1, 2}),    make({2, 0}),
            make({1, 0}), make({0, 1, 2}), make({1, 2, 0, 1})};
  }
  static void call(const Group& group, std::size_t rank) {
    std::fill_n(group.ranks[rank]->recv(), kCount, -1.0f);
    group.ranks[rank]->start(group.plans[rank], LaunchPath::Launched);
  }
  static void call(const Group& group) {
    for (std::size_t rank = 0; rank < group.ranks.size(); ++rank) call(group, rank);
  }
  static void expect_sums(const Group& group, std::uint64_t count = kCount) {
    for (const GpuRank* rank : group.ranks) {
      ASSERT_TRUE(rank->wait(LaunchPath::Launched))
          << "closed: " << name_of(reason_from(done_from(load_word(rank->box().closed)).reason));
      for (std::uint64_t i = 0; i < count; ++i) {
        float sum = 0;
        for (std::size_t other = 0; other < group.ranks.size(); ++other)
          sum += element(other, i, 0);
        ASSERT_EQ(rank->recv()[i], sum) << i;
      }
    }
  }
  // The first ranks have called; then the others do, all at once, so that each node is the last of
  // another communicator.
  static void run_crossed(const std::vector<Group>& groups, int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (const Group& group : groups) call(group, 0);
      std::this_thread::sleep_for(milliseconds(2));
      for (const Group& group : groups) {
        for (std::size_t rank = 1; rank < group.ranks.size(); ++rank) call(group, rank);
      }
      for (const Group& group : groups) expect_sums(group);
      if (HasFatalFailure()) return;
    }
  }
};

TEST_F(GpuNetworkOrder, TwoCommunicatorsThatAreAgreedOnInOppositeOrderBothRun) {
  sms_ = kFewSms;
  early_us_ = 0;
  start(2);
  run_crossed({make({0, 1}), make({1, 0})}, 50);
}

TEST_F(GpuNetworkOrder, ThreeCommunicatorsInACircleOfNodesAllRun) {
  sms_ = kFewSms;
  start(3);
  run_crossed({make({0, 1}), make({1, 2}), make({2, 0})}, 30);
}

TEST_F(GpuNetworkOrder, CommunicatorsThatShareAQueueOfTheirGpuBothRun) {
  early_us_ = 0;
  start(2);
  // They have the queues that are one communicator's alone.
  for (int i = 0; i < 4; ++i) make({0, 1}, seconds(40), 100);
  run_crossed({make({0, 1}), make({1, 0})}, 50);
}

TEST_F(GpuNetworkOrder, ManyCommunicatorsCalledInAnyOrderAllRun) {
  sms_ = kFewSms;
  start(3);
  const std::vector<Group> groups = make_many();
  std::vector<std::pair<std::size_t, std::size_t>> calls;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (std::size_t rank = 0; rank < groups[i].ranks.size(); ++rank) calls.emplace_back(i, rank);
  }
  std::mt19937 random(5);
  for (int round = 0; round < 30; ++round) {
    std::ranges::shuffle(calls, random);
    for (const auto& [group, rank] : calls) {
      call(groups[group], rank);
      if (random() % 3 == 0) std::this_thread::sleep_for(microseconds(random() % 300));
    }
    for (const Group& group : groups) expect_sums(group);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuNetworkOrder, ManyCommunicatorsThatCallOneAfterTheOtherAllRun) {
  sms_ = kFewSms;
  start(3);
  const std::vector<Group> groups = make_many();
  std::vector<std::thread> clients;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    clients.emplace_back([&group = groups[i], i] {
      std::mt19937 random(static_cast<unsigned>(i));
      std::vector<std::size_t> order(group.ranks.size());
      std::iota(order.begin(), order.end(), 0);
      for (int round = 0; round < 40 && !HasFatalFailure(); ++round) {
        std::ranges::shuffle(order, random);
        for (const std::size_t rank : order) {
          call(group, rank);
          if (random() % 4 == 0) std::this_thread::sleep_for(microseconds(random() % 500));
        }
        expect_sums(group);
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST_F(GpuNetworkOrder, OneWhoseRankIsLateHoldsUpNoCommunicatorOfItsNode) {
  sms_ = kNoSms;
  start(2);
  const Group late = make({0, 1});
  call(late, 0);
  std::this_thread::sleep_for(milliseconds(2));
  nodes_[0]->expect_serving(200'000, 3);
  call(late, 1);
  expect_sums(late);
}

TEST_F(GpuNetworkOrder, OneWhoseRankIsLateHoldsUpNoOther) {
  sms_ = kFewSms;
  start(2);
  const Group late = make({0, 1}), other = make({0, 1});
  for (int round = 0; round < 5; ++round) {
    call(late, static_cast<std::size_t>(round % 2));
    std::this_thread::sleep_for(milliseconds(2));
    for (int times = 0; times < 3; ++times) {
      call(other);
      expect_sums(other);
      if (HasFatalFailure()) return;
    }
    call(late, static_cast<std::size_t>(1 - round % 2));
    expect_sums(late);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuNetworkOrder, OneThatWaitsForAnothersEndUntilItsDeadlineBlamesNobody) {
  sms_ = kFewSms;
  start(2);
  const Group first = make({0, 1}), second = make({1, 0}, milliseconds(200));
  for (const auto& node : nodes_) node->hold(true);
  call(first);
  for (const auto& node : nodes_)
    ASSERT_TRUE(node->eventually([&] { return node->running() == 1; }));
  call(second);
  for (std::size_t rank = 0; rank < 2; ++rank)
    nodes_[second.where[rank]]->expect_closed(*second.ranks[rank], ErrorCode::DeadlineExceeded,
                                              Reason::Timeout, kNoRank);
  for (const auto& node : nodes_) node->hold(false);
  expect_sums(first);
  call(first);
  expect_sums(first);
}

TEST_F(GpuNetworkOrder, AnEndOfOneThatIsWaitedForLetsTheOthersRun) {
  sms_ = kFewSms;
  start(2);
  const Group late = make({0, 1}), other = make({1, 0});
  call(late, 0);
  std::this_thread::sleep_for(milliseconds(2));
  EXPECT_TRUE(await<void>([&](auto done) {
                nodes_[1]->worker().close_session(late.ranks[1]->client->id(), Reason::RemoteDied,
                                                  "it was killed", done);
              }).ok());
  call(other);
  expect_sums(other);
}

}  // namespace
}  // namespace arcomm::test

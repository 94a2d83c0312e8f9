// What the node has for all users, and who gets how much of it when it is short.
#include "daemon/control/limits/quota.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/limits/gpu_shares.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "proto/gpu/device_mailbox.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr MachineFacts kMachine{
    .descriptors = 16'384, .mappings = 65'530, .memory_bytes = 8192 * kMiB};
constexpr uid_t kMapped = 200'000;  // the first of a user namespace's

std::uint64_t take_all(FairShare& shares, uid_t uid, std::uint64_t step = 1) {
  std::uint64_t taken = 0;
  for (; shares.ask(uid, step) == FairShare::Answer::Yes; taken += step) shares.take(uid, step);
  return taken;
}

TEST(FairShareOfAmounts, AnAmountIsJudgedLikeSoManyTimesOne) {
  for (const std::uint64_t greed : {1, 3}) {
    for (std::uint64_t others = 0; others <= 40; ++others) {
      for (std::uint64_t amount = 1; amount <= 40; ++amount) {
        FairShare at_once({.node = 40, .greed = greed});
        at_once.take(1, others);
        FairShare singly = at_once;
        std::uint64_t taken = 0;
        while (taken < amount && singly.ask(2) == FairShare::Answer::Yes) {
          singly.take(2);
          ++taken;
        }
        EXPECT_EQ(at_once.ask(2, amount) == FairShare::Answer::Yes, taken == amount)
            << amount << " beside " << others << ", greed " << greed;
      }
    }
  }
}

TEST(FairShareOfAmounts, OneAloneGetsItsGreedsShareOfTheWhole) {
  FairShare half({.node = 1000});
  EXPECT_EQ(take_all(half, 7), 500u);
  FairShare three_quarters({.node = 1000, .greed = 3});
  EXPECT_EQ(take_all(three_quarters, 7), 750u);
}

TEST(FairShareOfAmounts, NeitherHugeAmountsNorHugeLimitsWrapAround) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  FairShare shares({.node = std::uint64_t{1} << 50, .greed = 3});
  EXPECT_EQ(shares.ask(1, kMost), FairShare::Answer::NodeIsShort);
  shares.take(1, 1);
  EXPECT_EQ(shares.ask(1, kMost - 1), FairShare::Answer::NodeIsShort);
  FairShare unlimited;
  unlimited.take(1, 5);
  EXPECT_EQ(unlimited.ask(1, kMost), FairShare::Answer::UidHasMost);
  EXPECT_EQ(unlimited.ask(1, kMost - 5), FairShare::Answer::Yes);
}

TEST(FairShareOfAmounts, ALimitThatShrinksBelowWhatIsInUseTakesNothingBackAndGivesNothingMore) {
  FairShare shares({.node = 100});
  EXPECT_EQ(take_all(shares, 1), 50u);
  shares.use_limits({.node = 10});
  EXPECT_EQ(shares.ask(2), FairShare::Answer::NodeIsShort);
  shares.give_back(1, 45);
  EXPECT_EQ(shares.ask(2), FairShare::Answer::Yes);
  EXPECT_EQ(shares.ask(1), FairShare::Answer::NodeIsShort);
}

TEST(FairShareOfAmounts, TellsWhoHasTheMost) {
  FairShare shares({.node = 100});
  EXPECT_EQ(shares.find_largest().amount, 0u);
  shares.take(9, 4);
  shares.take(3, 4);
  shares.take(5, 1);
  EXPECT_EQ(shares.find_largest().uid, 3u);
  EXPECT_EQ(shares.find_largest().amount, 4u);
}

class NodeQuota : public ::testing::Test {
 protected:
  QuotaBook& book(const Settings::Quota& limits) {
    return book_.emplace(limits, kMachine, metrics_);
  }
  // Holds as much of it as it gets.
  std::uint64_t drain(QuotaBook& quotas, uid_t uid, QuotaKind kind, std::uint64_t step = 1) {
    std::uint64_t taken = 0;
    for (;;) {
      Result<ChargePtr> charge = quotas.charge(uid, kind, step);
      if (!charge) return taken;
      held_.push_back(std::move(charge).value());
      taken += step;
    }
  }
  Metrics metrics_;
  std::optional<QuotaBook> book_;  // before what it was charged for
  std::vector<ChargePtr> held_;
};

// One person with a user namespace's uids, each of which has a quota of its own.
TEST_F(NodeQuota, AThousandUidsOfOneRangeLeaveRoomForEverybodyElse) {
  Settings::Quota limits;
  limits.node_sessions = 512;
  QuotaBook& quotas = book(limits);
  std::uint64_t mapped = 0;
  for (uid_t i = 0; i < 1000; ++i) mapped += drain(quotas, kMapped + i, QuotaKind::Sessions);
  EXPECT_LE(mapped, 256u + 128u) << "the uids lie in two ranges at most";
  for (const uid_t uid : {1001u, 1002u, 1003u}) {
    Result<ChargePtr> newcomer = quotas.charge(uid, QuotaKind::Sessions);
    EXPECT_TRUE(newcomer) << newcomer.error().message;
    if (newcomer) held_.push_back(std::move(newcomer).value());
  }
  held_.clear();
  EXPECT_EQ(quotas.total(QuotaKind::Sessions), 0u);
  EXPECT_EQ(quotas.shares(QuotaKind::Sessions).tenants(), 0u);
}

TEST_F(NodeQuota, ManyGreedyAccountsShareAndTheNextStillGetsIn) {
  Settings::Quota limits;
  limits.sessions = 65'536;
  limits.node_sessions = 4096;
  QuotaBook& quotas = book(limits);
  // In turns, as greedy ones come: all end with the same share, give or take one.
  std::uint64_t least = 4096, most = 0;
  for (bool gave = true; gave;) {
    gave = false;
    for (uid_t uid = 1000; uid < 1015; ++uid) {
      Result<ChargePtr> charge = quotas.charge(uid, QuotaKind::Sessions);
      if (!charge) continue;
      held_.push_back(std::move(charge).value());
      gave = true;
    }
  }
  for (uid_t uid = 1000; uid < 1015; ++uid) {
    least = std::min(least, quotas.used(uid, QuotaKind::Sessions));
    most = std::max(most, quotas.used(uid, QuotaKind::Sessions));
  }
  EXPECT_LE(most - least, 1u);
  EXPECT_GE(least, 4096u / 16 - 1);
  EXPECT_GE(drain(quotas, 2000, QuotaKind::Sessions), 4096u / 16 / 2);
}

TEST_F(NodeQuota, BelowHalfOfTheNodeAUserGetsAllOfItsOwnQuota) {
  Settings::Quota limits;
  limits.sessions = 256;
  limits.node_sessions = 1024;
  QuotaBook& quotas = book(limits);
  EXPECT_EQ(drain(quotas, 1000, QuotaKind::Sessions), 256u);
  EXPECT_EQ(drain(quotas, 1001, QuotaKind::Sessions), 256u);
}

TEST_F(NodeQuota, ARefusalNamesTheLimitAndWhoseShare) {
  Settings::Quota limits;
  limits.sessions = 4;
  limits.node_sessions = 6;
  QuotaBook& quotas = book(limits);
  EXPECT_EQ(drain(quotas, kMapped, QuotaKind::Sessions), 3u);
  const Error short_node = quotas.charge(kMapped + 1, QuotaKind::Sessions).error();
  EXPECT_EQ(short_node.code, ErrorCode::ResourceExhausted);
  EXPECT_EQ(short_node.reason, Reason::Quota);
  for (const char* said : {"sessions", "quota.node_sessions", "3 of 6", "uid 200001 and its range"})
    EXPECT_NE(short_node.message.find(said), std::string::npos)
        << said << ": " << short_node.message;
  EXPECT_EQ(metrics_.rejected[Reason::Quota].value(), 2u);
}

TEST_F(NodeQuota, MemoryThatIsShortIsCalledSo) {
  Settings::Quota limits;
  limits.node_host_bytes = 100 * kMiB;
  QuotaBook& quotas = book(limits);
  const Error why = quotas.charge(1000, QuotaKind::HostBytes, 90 * kMiB).error();
  EXPECT_EQ(why.reason, Reason::OutOfMemory);
  EXPECT_NE(why.message.find("quota.node_host_bytes"), std::string::npos) << why.message;
  EXPECT_EQ(drain(quotas, 1000, QuotaKind::HostBytes, kMiB), 75 * kMiB);
}

// Pages that a client registered and the machine has yet to find.
TEST_F(NodeQuota, NobodyIsPromisedAllThatIsAvailable) {
  QuotaBook& quotas = book(Settings::Quota{});
  quotas.note_available(100 * kMiB);
  EXPECT_EQ(drain(quotas, 1000, QuotaKind::UnfilledBytes, kMiB), 75 * kMiB);
  EXPECT_EQ(quotas.charge(1000, QuotaKind::UnfilledBytes, kMiB).error().reason,
            Reason::OutOfMemory);
  EXPECT_TRUE(quotas.charge(1000, QuotaKind::UnfilledBytes, 0)) << "all of its pages are there";
  EXPECT_TRUE(quotas.charge(1001, QuotaKind::UnfilledBytes, 10 * kMiB));
}

TEST_F(NodeQuota, GpusPlansAreFewerThanOneUsersQuotaAndStillNotAllHis) {
  QuotaBook& quotas = book(Settings::Quota{});
  EXPECT_EQ(drain(quotas, 1000, QuotaKind::DevicePlans), kMaxDevicePlans / 4 * 3);
  EXPECT_GT(drain(quotas, 1001, QuotaKind::DevicePlans), 1000u);
}

// Its table has 32 places, fewer than one user's quota of communicators.
TEST_F(NodeQuota, NobodyTakesAllPlacesOfAGpuAndAnotherGpuIsAnotherMatter) {
  GpuShares gpus(metrics_, {{"GPU-a", 0}, {"GPU-b", 0}});
  std::vector<GpuShares::SharePtr> taken;
  const auto drain_gpu = [&](uid_t uid, const std::string& gpu,
                             GpuResource what = GpuResource::Communicators) {
    std::size_t count = 0;
    for (;; ++count) {
      Result<GpuShares::SharePtr> share = gpus.take(uid, gpu, what);
      if (!share) return count;
      taken.push_back(std::move(share).value());
    }
  };
  EXPECT_EQ(drain_gpu(kMapped, "GPU-a"), 24u);
  EXPECT_EQ(drain_gpu(kMapped + 1, "GPU-a"), 0u) << "the same person";
  const Error refused = gpus.take(kMapped + 2, "GPU-a", GpuResource::Communicators).error();
  EXPECT_EQ(refused.code, ErrorCode::ResourceExhausted);
  EXPECT_EQ(refused.reason, Reason::Quota);
  EXPECT_NE(refused.message.find("GPU-a is short of communicators"), std::string::npos)
      << refused.message;
  EXPECT_NE(refused.message.find("24 of 32"), std::string::npos) << refused.message;
  EXPECT_EQ(drain_gpu(1000, "GPU-a"), 6u);
  EXPECT_EQ(drain_gpu(1001, "GPU-a"), 2u);
  EXPECT_EQ(drain_gpu(kMapped, "GPU-b"), 24u);
  EXPECT_EQ(drain_gpu(kMapped, "GPU-a", GpuResource::Ranks), kMaxRanksOfGpu / 4 * 3);
  EXPECT_GT(drain_gpu(1000, "GPU-a", GpuResource::Ranks), 100u);
  EXPECT_EQ(metrics_.node(NodeResource::GpuCommunicators).used.value(), 32 + 24);
  EXPECT_EQ(metrics_.node(NodeResource::GpuCommunicators).limit.value(), 64);
  taken.clear();
  EXPECT_EQ(gpus.shares().at("GPU-a")[0].total(), 0u);
  EXPECT_EQ(metrics_.node(NodeResource::GpuRanks).used.value(), 0);
}

TEST_F(NodeQuota, NobodyGetsAllOfAGpusMemory) {
  GpuShares gpus(metrics_, {{"GPU-a", 80 * kMiB}, {"GPU-unknown", 0}});
  const auto mine = gpus.take(1000, "GPU-a", GpuResource::Bytes, 60 * kMiB);
  ASSERT_TRUE(mine) << mine.error().message;
  const Error refused = gpus.take(1000, "GPU-a", GpuResource::Bytes, kMiB).error();
  EXPECT_EQ(refused.reason, Reason::OutOfMemory);
  EXPECT_NE(refused.message.find("GPU-a is short of bytes (quota.node_gpu_bytes)"),
            std::string::npos)
      << refused.message;
  EXPECT_NE(refused.message.find("uid 1000 and its range have 62914560"), std::string::npos)
      << refused.message;
  EXPECT_TRUE(gpus.take(1001, "GPU-a", GpuResource::Bytes, 15 * kMiB));
  EXPECT_TRUE(gpus.take(1000, "GPU-unknown", GpuResource::Bytes, std::uint64_t{1} << 40));
  gpus.use_memory_limit(40 * kMiB);
  EXPECT_FALSE(gpus.take(1001, "GPU-a", GpuResource::Bytes, kMiB)) << "20 MiB too many are lent";
  EXPECT_EQ(metrics_.node(NodeResource::GpuBytes).limit.value(), 80 * kMiB)
      << "40 of each: what the other has is not known";
  // What the GPU rounded up to is counted, whatever the limits say.
  const GpuShares::SharePtr rounded = gpus.note(1001, "GPU-a", GpuResource::Bytes, kMiB);
  EXPECT_EQ(gpus.shares().at("GPU-a")[2].total(), 61 * kMiB);
}

TEST_F(NodeQuota, WhatIsNotSetComesFromTheMachine) {
  const Settings::Quota filled = fill_node_limits(Settings::Quota{}, kMachine);
  EXPECT_EQ(filled.node_sessions, 1024u);
  EXPECT_EQ(filled.node_mappings, 32'765u);
  EXPECT_EQ(filled.node_host_bytes, 7168 * kMiB);
  EXPECT_EQ(filled.node_communicators, 8192u);
  EXPECT_EQ(filled.node_plans, 262'144u);
  EXPECT_EQ(filled.node_connections, 2048u);
  EXPECT_EQ(filled.node_calls, 4096u);
  Settings::Quota asked;
  asked.node_sessions = 5;
  asked.node_host_bytes = 6;
  EXPECT_EQ(fill_node_limits(asked, kMachine).node_sessions, 5u);
  EXPECT_EQ(fill_node_limits(asked, kMachine).node_host_bytes, 6u);
}

TEST_F(NodeQuota, ThisMachineHasSomeOfEverything) {
  const MachineFacts machine = read_machine();
  EXPECT_GT(machine.descriptors, 0u);
  EXPECT_GT(machine.mappings, 0u);
  EXPECT_GT(machine.memory_bytes, 64 * kMiB);
  EXPECT_LT(machine.memory_bytes, std::uint64_t{1} << 50);
}

TEST_F(NodeQuota, AReloadChangesWhatIsGivenFromThenOnAndTheMetricsTellBoth) {
  Settings::Quota limits;
  limits.node_mappings = 10;
  QuotaBook& quotas = book(limits);
  EXPECT_EQ(drain(quotas, 1000, QuotaKind::Mappings), 5u);
  limits.node_mappings = 40;
  quotas.use_limits(limits);
  EXPECT_EQ(drain(quotas, 1000, QuotaKind::Mappings), 15u);
  EXPECT_EQ(metrics_.node(NodeResource::Mappings).used.value(), 20);
  EXPECT_EQ(metrics_.node(NodeResource::Mappings).limit.value(), 40);
}

}  // namespace
}  // namespace arcomm

// The library's side of plans in a session's ring against a real worker on fake GPUs. There is no
// control plane: a call finds no socket, and fails.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "client/src/gpu/plans_at_daemon.h"
#include "tests/unit/client/host/rings/submission_fixture.h"
#include "tests/unit/daemon/exec/gpu/speculation/gpu_speculation_fixture.h"

namespace arcomm::test {
namespace {

constexpr std::uint64_t kApart = 512;  // bytes, as between tensors of one allocation

// What a library has of a session, as far as plans are concerned.
class Library {
 public:
  explicit Library(const Client& session)
      : submission_({.segment = session.opened(),
                     .doorbell = session.event(),
                     .max_in_flight = 0,
                     .descriptors = socket_.channel(),
                     .staging = staging_,
                     .aborts = aborts_}) {}

  client::PlansAtDaemon& plans() { return plans_; }

 private:
  client::DescriptorSocket socket_;
  client::NodeControl control_{"/nowhere"};
  client::SessionKey key_;
  client::StagingPool staging_{control_, socket_.channel(), key_};
  client::DueAborts aborts_{[](MemberId, client::Deadline) { return Status(); }};
  client::Submission submission_;
  client::Waiting waiting_{submission_};
  client::PlansAtDaemon plans_{control_, key_, submission_, waiting_};
};

class PlansInRing : public GpuSpeculation {
 protected:
  static client::Deadline soon() { return client::Deadline::after(milliseconds(60'000)); }
  // The i-th address in allocations that the daemon knows.
  static client::NewPlan wanted(const GpuRank& rank, std::uint64_t i, std::uint64_t count) {
    return {.member = rank.member,
            .send_buffer = rank.buffer,
            .send_offset_bytes = i * kApart,
            .recv_buffer = rank.buffer,
            .recv_offset_bytes = rank.half_bytes + i * kApart,
            .spec = all_reduce_of(count),
            .timeout_ms = 60'000};
  }
  void pay(const GpuRank& rank, std::uint64_t plans) {
    worker_->pay_plans(rank.client->id(), plans);
    inspect();  // behind it
  }
};

TEST_F(PlansInRing, ACallWithNewAddressesInAKnownAllocationMakesNoCallToTheDaemon) {
  const auto ranks = group(2);
  Library libraries[] = {Library(*ranks[0]->client), Library(*ranks[1]->client)};
  constexpr std::uint64_t kCount = kLarge - 64 * kApart, kCalls = 60;
  for (GpuRank* rank : ranks) pay(*rank, kCalls);
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    std::vector<PlanId> plans;
    for (std::size_t r = 0; r < 2; ++r) {
      const Result<PlanId> made = libraries[r].plans().create(wanted(*ranks[r], i, kCount), soon());
      ASSERT_TRUE(made.ok()) << made.error().to_string();
      plans.push_back(*made);
      ranks[r]->send()[i * kApart / sizeof(float)] = static_cast<float>(i + r);
    }
    for (std::size_t r = 0; r < 2; ++r) ranks[r]->start(plans[r], LaunchPath::Launched);
    for (GpuRank* rank : ranks) {
      ASSERT_TRUE(rank->wait(LaunchPath::Launched));
      EXPECT_EQ(rank->recv()[i * kApart / sizeof(float)], static_cast<float>(2 * i + 1));
    }
  }
}

TEST_F(PlansInRing, OldPlansMakeRoomForNewOnesWithoutACallEither) {
  GpuRank& rank = *group(1)[0];
  Library library(*rank.client);
  pay(rank, 1);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const Result<PlanId> made = library.plans().create(wanted(rank, i, 64), soon());
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    ASSERT_TRUE(library.plans().replace(*made, soon()).ok());
  }
  ASSERT_TRUE(library.plans().create(wanted(rank, 0, 64), soon()).ok());
  EXPECT_FALSE(library.plans().create(wanted(rank, 1, 64), soon()).ok()) << "this one is a call";
}

TEST_F(PlansInRing, AWorkerThatSleepsIsWokenToMakeOne) {
  GpuRank& rank = *group(1)[0];
  Library library(*rank.client);
  pay(rank, 20);
  for (std::uint64_t i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(milliseconds(10));  // beyond its spinning
    ASSERT_TRUE(library.plans().create(wanted(rank, i, 64), soon()).ok());
  }
}

}  // namespace
}  // namespace arcomm::test

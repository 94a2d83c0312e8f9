// Plans that a client makes and removes in its ring: what runs by them, what is refused, and what a
// client that keeps to no rule can do with them.
#include <random>

#include "tests/unit/daemon/exec/gpu/speculation/gpu_speculation_fixture.h"

namespace arcomm::test {
namespace {

class GpuPlansInRing : public GpuSpeculation {
 protected:
  static ring::WorkRequest making(const GpuRank& rank, std::uint64_t count) {
    ring::WorkRequest request;
    request.magic = ring::kPlanMagic;
    request.dtype = static_cast<std::uint8_t>(DType::Float32);
    request.member = rank.member.bits();
    request.send_buffer = request.recv_buffer = rank.buffer.bits();
    request.recv_offset_bytes = rank.half_bytes;
    request.send_count = request.recv_count = count;
    request.timeout_ns = 60'000'000'000;
    return request;
  }
  static ring::WorkRequest removing(PlanId plan) {
    ring::WorkRequest request;
    request.magic = ring::kPlanMagic;
    request.plan = plan.bits();
    return request;
  }
  void ask(GpuRank& rank, ring::WorkRequest request) {
    request.ticket = ++ticket_;
    ASSERT_EQ(rank.client->producer().push(request), ring::Push::Done);
    rank.client->ring_bell();
  }
  Result<PlanId> answer(GpuRank& rank) {
    const std::optional<ring::Completion> told = rank.client->next();
    if (!told) return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "no answer");
    EXPECT_EQ(told->ticket, ticket_);
    EXPECT_EQ(told->stage, ring::Stage::Done);
    if (told->code != 0)
      return Error{error_code_from(told->code), reason_from(told->reason), told->detail, -1};
    return PlanId::from_bits(told->seq);
  }
  Result<PlanId> asked(GpuRank& rank, const ring::WorkRequest& request) {
    ask(rank, request);
    return answer(rank);
  }
  void pay(const GpuRank& rank, std::uint64_t plans) {
    worker_->pay_plans(rank.client->id(), plans);
    inspect();  // behind it
  }
  PlanId made(GpuRank& rank, std::uint64_t count) {
    const Result<PlanId> plan = asked(rank, making(rank, count));
    EXPECT_TRUE(plan.ok()) << (plan ? "" : plan.error().to_string());
    return plan ? *plan : PlanId{};
  }

  GpuRank& alone() {
    GpuRank& made = rank(2, 4096);
    form({&made}, {2});
    return made;
  }

  std::uint64_t ticket_ = 0;
};

TEST_F(GpuPlansInRing, RunAsThoseThatControlAsksForAndAlongWithThem) {
  const auto ranks = group(2);
  pay(*ranks[0], 2);
  pay(*ranks[1], 1);
  const std::vector<PlanId> in_ring{made(*ranks[0], kLarge), made(*ranks[1], kLarge)};
  const std::vector<PlanId> mixed{made(*ranks[0], kOther), plan(*ranks[1], kOther)};
  for (int i = 0; i < 4; ++i) run(ranks, in_ring);
  for (int i = 0; i < 4; ++i) run(ranks, mixed, kOther);
}

TEST_F(GpuPlansInRing, SmallOnesAreInTheGridAndGoByACallAlone) {
  const auto ranks = group(2);
  std::vector<PlanId> plans;
  for (GpuRank* rank : ranks) {
    pay(*rank, 1);
    plans.push_back(made(*rank, kSmall));
  }
  for (std::size_t i = 0; i < 2; ++i) {
    ranks[i]->send()[0] = 4;
    ranks[i]->start(plans[i], LaunchPath::Resident);
  }
  for (GpuRank* rank : ranks) {
    ASSERT_TRUE(rank->wait(LaunchPath::Resident));
    EXPECT_EQ(rank->recv()[0], 8);
  }
  const Result<PlanId> refused = asked(*ranks[0], removing(plans[0]));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::FailedPrecondition);
  EXPECT_TRUE(remove_plan(*ranks[0], plans[0]).ok());
}

TEST_F(GpuPlansInRing, AreNoMoreThanWereChargedFor) {
  GpuRank& rank = *group(1)[0];
  const auto expect_refused = [&] {
    const Result<PlanId> refused = asked(rank, making(rank, kLarge));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::ResourceExhausted);
    EXPECT_EQ(refused.error().reason, Reason::Quota);
  };
  expect_refused();
  const PlanId called = plan(rank, kLarge);
  expect_refused();  // that one has taken its charge
  pay(rank, 2);
  const PlanId first = made(rank, kLarge);
  made(rank, kLarge);
  expect_refused();
  ASSERT_TRUE(asked(rank, removing(first)).ok());
  const PlanId second = made(rank, kLarge);  // in its place
  EXPECT_NE(first, second);
  expect_refused();
  EXPECT_TRUE(remove_plan(rank, second).ok());
  expect_refused();  // it took a charge along
  ASSERT_TRUE(asked(rank, removing(called)).ok());
  made(rank, kLarge);
  expect_refused();
}

TEST_F(GpuPlansInRing, AreCheckedAsThoseThatControlAsksFor) {
  const auto ranks = group(2);
  GpuRank& rank = *ranks[0];
  pay(rank, 100);
  const auto expect_refused = [&](auto spoil) {
    ring::WorkRequest request = making(rank, kLarge);
    spoil(request);
    const Result<PlanId> in_ring = asked(rank, request);
    PlanSpec spec{.member = MemberId::from_bits(request.member),
                  .send_buffer = BufferId::from_bits(request.send_buffer),
                  .recv_buffer = BufferId::from_bits(request.recv_buffer),
                  .send_offset_bytes = request.send_offset_bytes,
                  .recv_offset_bytes = request.recv_offset_bytes,
                  .spec = all_reduce_of(request.send_count),
                  .timeout_ns = request.timeout_ns};
    spec.spec.recv_count = request.recv_count;
    spec.spec.dtype = static_cast<DType>(request.dtype);
    const Result<PlanId> called =
        await<PlanId>([&](auto done) { worker_->add_plan(rank.client->id(), spec, done); });
    ASSERT_FALSE(in_ring.ok() || called.ok());
    EXPECT_EQ(name_of(in_ring.error().code), name_of(called.error().code));
    EXPECT_EQ(name_of(in_ring.error().reason), name_of(called.error().reason));
  };
  expect_refused([&](auto& request) { request.member = ranks[1]->member.bits(); });
  expect_refused([&](auto& request) { request.member = MemberId{77, 1}.bits(); });
  expect_refused([&](auto& request) { request.send_buffer = ranks[1]->buffer.bits(); });
  expect_refused([&](auto& request) { request.recv_buffer = BufferId{77, 1}.bits(); });
  expect_refused([&](auto& request) { request.send_offset_bytes = 2 * rank.half_bytes; });
  expect_refused([&](auto& request) { request.send_offset_bytes = ~std::uint64_t{0} - 3; });
  expect_refused([&](auto& request) { request.recv_offset_bytes = 2; });  // overlaps
  expect_refused([&](auto& request) { request.send_count = 7; });
  expect_refused([&](auto& request) { request.dtype = 200; });
  expect_refused([&](auto& request) { request.send_count = request.recv_count = 1ull << 62; });
  expect_serving(kLarge);
}

TEST_F(GpuPlansInRing, OfAnotherSessionStayThere) {
  const auto ranks = group(2);
  const PlanId plans[] = {plan(*ranks[0], kLarge), plan(*ranks[1], kLarge)};
  const Result<PlanId> refused = asked(*ranks[0], removing(plans[1]));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::NotFound);
  EXPECT_FALSE(asked(*ranks[0], removing(PlanId{4000, 1})).ok());
  run(ranks, {plans[0], plans[1]});
}

TEST_F(GpuPlansInRing, ThatGoWhileTheyWaitInTheQueuesAreWithdrawn) {
  const auto ranks = group(2);
  const auto same = plans(ranks);
  speculate(ranks, same);
  for (std::size_t i = 0; i < 2; ++i) {
    pay(*ranks[i], 1);
    ASSERT_TRUE(asked(*ranks[i], removing(same[i])).ok());
  }
  EXPECT_TRUE(eventually([&] { return node_.gated == 0; }));
  std::vector<PlanId> others;
  for (GpuRank* rank : ranks) others.push_back(made(*rank, kOther));
  run(ranks, others, kOther);
}

// As a client may: the GPU says that it has ended before the worker has seen that it was called.
TEST_F(GpuPlansInRing, MayGoOnceTheirLastStartHasEnded) {
  const auto ranks = group(2);
  for (GpuRank* rank : ranks) pay(*rank, 1);
  for (int round = 0; round < 50; ++round) {
    std::vector<PlanId> plans;
    for (GpuRank* rank : ranks) plans.push_back(made(*rank, kLarge));
    for (int i = 0; i < 4; ++i) run(ranks, plans);
    for (std::size_t i = 0; i < 2; ++i) ASSERT_TRUE(asked(*ranks[i], removing(plans[i])).ok());
  }
}

TEST_F(GpuPlansInRing, GoWithAClientThatDiesAsItAsks) {
  const auto ranks = group(2);
  pay(*ranks[0], 100);
  for (int i = 0; i < 10; ++i) made(*ranks[0], kLarge);
  for (int i = 0; i < 20; ++i) ask(*ranks[0], making(*ranks[0], kLarge));
  EXPECT_TRUE(await<void>([&](auto done) {
                worker_->close_session(ranks[0]->client->id(), Reason::RemoteDied, "killed", done);
              }).ok());
  expect_closed(*ranks[1], ErrorCode::Aborted, Reason::RemoteDied, 0);
  expect_serving(kLarge);  // and at the end all memory is let go
}

TEST_F(GpuPlansInRing, OfAClientThatWritesAnythingAreAnsweredOneByOneAndHarmNobody) {
  GpuRank& bad = alone();
  const auto ranks = group(2);
  pay(bad, 50);
  std::mt19937_64 random(7);
  std::vector<std::uint64_t> known{bad.member.bits(), bad.buffer.bits(), ranks[0]->member.bits(),
                                   ranks[0]->buffer.bits(), 0};
  const auto any = [&]() -> std::uint64_t {
    switch (random() % 4) {
      case 0:
        return random();
      case 1:
        return random() % 4096;
      case 2:
        return ~std::uint64_t{0} - random() % 16;
      default:
        return known[random() % known.size()];
    }
  };
  for (int i = 0; i < 3000; ++i) {
    ring::WorkRequest request = making(bad, random() % 512);
    if (random() % 2 == 0) request.send_buffer = any();
    if (random() % 3 == 0) request.recv_offset_bytes = any();
    if (random() % 3 == 0) request.send_offset_bytes = any();
    if (random() % 4 == 0) request.member = any();
    if (random() % 4 == 0) request.dtype = static_cast<std::uint8_t>(random());
    if (random() % 4 == 0) request.send_count = any();
    if (random() % 4 == 0) request.timeout_ns = any();
    if (random() % 3 == 0) request.plan = any();
    const Result<PlanId> told = asked(bad, request);
    if (told) known.push_back(told->bits());
    if (HasFatalFailure() || HasFailure()) return;
  }
  run(ranks, plans(ranks));
}

// Whoever floods makes its own requests wait, and nobody else's be refused.
TEST_F(GpuPlansInRing, AFloodOfThemLeavesOthersTheirTurns) {
  GpuRank& bad = alone();
  const auto ranks = group(2);
  pay(bad, 1);
  std::atomic<bool> over{false};
  std::thread flood([&] {
    ring::WorkRequest request = making(bad, 512);
    while (!over) {
      bad.client->producer().push(request);
      while (bad.client->next(std::chrono::nanoseconds(0))) {
      }
    }
  });
  const auto same = plans(ranks);
  for (int i = 0; i < 20; ++i) run(ranks, same);
  over = true;
  flood.join();
}

}  // namespace
}  // namespace arcomm::test

#include "daemon/exec/host/host_backend.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/exec/clock.h"
#include "transport/device/host/host_device.h"

namespace arcomm {
namespace {

class HostBackendTest : public ::testing::Test {
 protected:
  HostBackendTest() {
    backend_ =
        HostBackend::create(*device_, 1, buffers_, std::make_shared<TuningTable>(default_tuning()))
            .value();
    members_ = form(2);
  }
  // As the worker does it.
  std::vector<MemberId> form(Rank ranks) {
    std::vector<Seat> seats;
    for (Rank rank = 0; rank < ranks; ++rank)
      seats.push_back({.rank = rank, .session = {}, .member = {}});
    std::vector<MemberId> members = table_.form({}, 1, std::move(seats));
    EXPECT_TRUE(backend_->form({}, table_.find(members.front())->communicator->extension).ok());
    return members;
  }
  void arrive(std::size_t rank, std::uint64_t deadline_ns) {
    Operation& operation = operations_[rank];
    operation.member = members_[rank];
    operation.rank = static_cast<Rank>(rank);
    operation.seat = static_cast<std::uint32_t>(rank);
    operation.signature = Signature::whole(all_reduce_of(4));
    operation.send = reinterpret_cast<const std::byte*>(send_[rank].data());
    operation.recv = reinterpret_cast<std::byte*>(recv_[rank].data());
    operation.deadline_ns = deadline_ns;
    table_.arrive(operation);
  }
  // As the worker does it: what may run, and what came of it.
  bool start_next() {
    Communicator* communicator = table_.next_ready();
    if (communicator == nullptr) return false;
    Failure failure;
    if (backend_->start(*communicator, now_ns(), failure) == Backend::Started::Ended)
      table_.completed(*communicator, failure);
    return true;
  }
  bool collect() {
    std::vector<Outcome> outcomes;
    const bool found = backend_->collect(outcomes);
    for (const Outcome& outcome : outcomes)
      table_.completed(*outcome.communicator, outcome.failure);
    return found;
  }
  std::vector<Operation*> ended() {
    std::vector<Operation*> list;
    while (Operation* operation = table_.finished().pop()) list.push_back(operation);
    return list;
  }

  CommunicatorTable table_{[](Communicator&) {}};
  std::unique_ptr<HostDevice> device_ = HostDevice::create({}).value();
  BufferRegistry buffers_;
  std::unique_ptr<HostBackend> backend_;
  std::vector<MemberId> members_;
  std::array<Operation, 2> operations_;
  std::uint64_t seq_ = 0;
  std::array<std::array<float, 4>, 2> send_{{{1, 1, 1, 1}, {2, 2, 2, 2}}};
  std::array<std::array<float, 4>, 2> recv_{};
};

TEST_F(HostBackendTest, KeepsACommunicatorsTableWhenTheNodeIsTunedBetweenTwoOperations) {
  // 64 KB: built in, the worker runs it at once; as tuned, it is cut into tiles.
  constexpr std::uint64_t kCount = 16384;
  const auto runs_at_once = [&](const std::vector<MemberId>& members) {
    std::array<std::vector<float>, 2> data;
    std::array<Operation, 2> operations;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      data[rank].resize(kCount);
      operations[rank] = Operation{};
      operations[rank].member = members[rank];
      operations[rank].rank = static_cast<Rank>(rank);
      operations[rank].seat = static_cast<std::uint32_t>(rank);
      operations[rank].seq = seq_;
      operations[rank].signature = Signature::whole(all_reduce_of(kCount));
      operations[rank].send = reinterpret_cast<const std::byte*>(data[rank].data());
      operations[rank].recv = reinterpret_cast<std::byte*>(data[rank].data());
      operations[rank].deadline_ns = now_ns() + 60'000'000'000;
      table_.arrive(operations[rank]);
    }
    EXPECT_TRUE(start_next());
    const bool at_once = backend_->idle();
    while (!backend_->idle()) {
      backend_->work();
      collect();
    }
    EXPECT_EQ(ended().size(), 2u);
    return at_once;
  };
  EXPECT_TRUE(runs_at_once(members_));
  auto tuned = std::make_shared<TuningTable>();
  tuned->points = {{2, kCount * 4, TypeClass::Plain, Algorithm::Tiled, 64 << 10, 1.0}};
  tuned->settle();
  backend_->use_tuning(tuned);
  ++seq_;
  EXPECT_TRUE(runs_at_once(members_));
  seq_ = 0;
  EXPECT_FALSE(runs_at_once(form(2)));
}

TEST_F(HostBackendTest, RunsWhatIsInTime) {
  for (const std::size_t rank : {0u, 1u}) arrive(rank, now_ns() + 60'000'000'000);
  EXPECT_TRUE(start_next());
  for (const Operation* operation : ended()) EXPECT_TRUE(operation->outcome.ok());
  EXPECT_EQ(recv_[0][0], 3.0f);
}

TEST_F(HostBackendTest, WhatWasStoppedEndsWithItsReasonAndWhatIsUntouchedStaysSo) {
  constexpr std::uint64_t kCount = 1 << 19;
  std::array<std::vector<float>, 2> send, recv;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    send[rank].assign(kCount, 1.0f);
    recv[rank].assign(kCount, -1.0f);
    Operation& operation = operations_[rank];
    operation.member = members_[rank];
    operation.rank = static_cast<Rank>(rank);
    operation.seat = static_cast<std::uint32_t>(rank);
    operation.signature = Signature::whole(all_reduce_of(kCount));
    operation.send = reinterpret_cast<const std::byte*>(send[rank].data());
    operation.recv = reinterpret_cast<std::byte*>(recv[rank].data());
    operation.deadline_ns = now_ns() + 60'000'000'000;
    table_.arrive(operation);
  }
  ASSERT_TRUE(start_next());
  ASSERT_TRUE(backend_->work());
  Communicator& communicator = *table_.find(members_[0])->communicator;
  table_.revoke(communicator,
                make_failure(ErrorCode::Aborted, Reason::RemoteDied, 1, "%s", "gone"));
  backend_->stop(communicator);
  EXPECT_TRUE(collect());
  const std::vector<Operation*> both = ended();
  ASSERT_EQ(both.size(), 2u);
  for (const Operation* operation : both) EXPECT_EQ(operation->outcome.reason, Reason::RemoteDied);
  EXPECT_EQ(recv[0][kCount - 1], -1.0f);
  EXPECT_TRUE(backend_->idle());
}

TEST_F(HostBackendTest, WorksOnOneTileAtATimeOfEachLargeOperationInTurn) {
  constexpr std::uint64_t kCount = 1 << 19;  // 2 MB: 32 tiles of 64 KB
  std::array<std::vector<float>, 2> send, recv;
  std::array<Operation, 2> large;
  for (std::size_t i = 0; i < large.size(); ++i) {
    send[i].assign(kCount, 1.5f);
    recv[i].resize(kCount);
    large[i].member = form(1).front();
    large[i].rank = 0;
    large[i].signature = Signature::whole(all_reduce_of(kCount));
    large[i].send = reinterpret_cast<const std::byte*>(send[i].data());
    large[i].recv = reinterpret_cast<std::byte*>(recv[i].data());
    large[i].deadline_ns = now_ns() + 60'000'000'000;
    table_.arrive(large[i]);
    ASSERT_TRUE(start_next());
  }
  for (int tile = 0; tile < 62; ++tile) {
    ASSERT_TRUE(backend_->work());
    EXPECT_FALSE(collect()) << "one is done after " << tile + 1 << " of 64 tiles";
  }
  EXPECT_TRUE(backend_->work());
  EXPECT_TRUE(backend_->work());
  EXPECT_FALSE(backend_->work());
  EXPECT_TRUE(collect());
  EXPECT_EQ(ended().size(), 2u);
  EXPECT_TRUE(backend_->idle());
  EXPECT_EQ(recv[1][kCount - 1], 1.5f);
}

// What is always ready again must not make the table's queue grow: two that never rest.
TEST_F(HostBackendTest, CommunicatorsThatAreAlwaysReadyTakeTurns) {
  std::array<MemberId, 2> alone{};
  std::array<std::uint64_t, 2> done{}, next{};
  std::array<std::array<Operation, 2>, 2> operations;
  const auto arrive_at = [&](std::size_t i) {
    Operation& operation = operations[i][next[i] % 2];
    operation = Operation{};
    operation.ticket = i;
    operation.member = alone[i];
    operation.rank = 0;
    operation.seq = next[i]++;
    operation.deadline_ns = now_ns() + 60'000'000'000;
    table_.arrive(operation);
  };
  for (std::size_t i = 0; i < 2; ++i) {
    alone[i] = form(1).front();
    arrive_at(i);
    arrive_at(i);
  }
  for (int turn = 0; turn < 1000; ++turn) {
    ASSERT_TRUE(start_next());
    const std::vector<Operation*> over = ended();
    ASSERT_EQ(over.size(), 1u);
    ++done[over[0]->ticket];
    arrive_at(over[0]->ticket);
  }
  EXPECT_EQ(done[0], 500u);
  EXPECT_EQ(done[1], 500u);
}

TEST_F(HostBackendTest, WhatWaitsForAJobGetsItBeforeWhatComesLater) {
  constexpr std::uint64_t kCount = 1 << 19;
  constexpr std::size_t kMany = HostLauncher::kMaxJobs + 4;
  std::vector<float> send(kCount, 1.5f), recv(kCount);
  std::array<Operation, kMany> large;
  std::array<Communicator*, kMany> communicators{};
  const auto begin = [&](std::size_t i, std::uint64_t deadline_ns) {
    large[i].member = table_.form({}, 1, {Seat{.rank = 0, .session = {}, .member = {}}}).front();
    large[i].rank = 0;
    large[i].signature = Signature::whole(all_reduce_of(kCount));
    large[i].send = reinterpret_cast<const std::byte*>(send.data());
    large[i].recv = reinterpret_cast<std::byte*>(recv.data());
    large[i].deadline_ns = deadline_ns;
    communicators[i] = table_.find(large[i].member)->communicator;
    EXPECT_TRUE(backend_->form({}, communicators[i]->extension).ok());
    table_.arrive(large[i]);
    ASSERT_TRUE(start_next());
  };
  const auto stop = [&](Communicator& communicator) {
    table_.revoke(communicator, make_failure(ErrorCode::Aborted, Reason::RemoteDied, 1, "%s", ""));
    backend_->stop(communicator);
  };
  const auto has_begun = [&](std::size_t i) { return large[i].record.launched_ns != 0; };
  constexpr std::size_t kLate = kMany - 4, kWaits = kMany - 3, kStopped = kMany - 2;
  const std::uint64_t in_time = now_ns() + 60'000'000'000;
  for (std::size_t i = 0; i < HostLauncher::kMaxJobs; ++i) begin(i, in_time);
  begin(kLate, 1);  // and still to be told
  begin(kWaits, in_time);
  begin(kStopped, in_time);
  stop(*communicators[kStopped]);
  EXPECT_TRUE(collect());
  EXPECT_EQ(ended().size(), 1u) << "what was stopped waits for no job";
  stop(*communicators[0]);
  EXPECT_TRUE(collect());
  EXPECT_TRUE(has_begun(kWaits)) << "it waited behind one that will not run any more";
  EXPECT_FALSE(has_begun(kLate));
  begin(kMany - 1, in_time);
  EXPECT_FALSE(has_begun(kMany - 1));
  for (Communicator* communicator : communicators) stop(*communicator);
  while (!backend_->idle()) collect();
  EXPECT_EQ(ended().size(), kMany - 1);
}

}  // namespace
}  // namespace arcomm

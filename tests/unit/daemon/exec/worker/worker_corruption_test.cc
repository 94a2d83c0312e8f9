// Rings whose indices or slots their client breaks, or never reads: its own session pays.
#include <atomic>

#include "tests/unit/daemon/exec/worker/worker_faults.h"

namespace arcomm::test {
namespace {

// The worker polls it.
void stamp_first_slot(Client& client, std::uint64_t stamp) {
  std::atomic_ref(client.request_view().slots[0].stamp).store(stamp, std::memory_order_release);
}

TEST_F(WorkerFaults, ARequestWithoutItsMagicQuarantinesTheSession) {
  auto ranks = group(2);
  ranks[1]->call(4);
  wait_for_pending(1);
  ring::WorkRequest request = ranks[0]->request(4);
  request.magic = 0;
  ranks[0]->submit(request);
  expect_end(*ranks[1], ErrorCode::Aborted, Reason::Quarantined, 0, "rank 0");
  EXPECT_EQ(ranks[0]->state(), ring::SessionState::Quarantined);
  {
    const std::lock_guard lock(mutex_);
    ASSERT_EQ(lost_.size(), 1u);
    EXPECT_EQ(lost_[0], std::pair(ranks[0]->id(), Reason::Quarantined));
  }
  EXPECT_TRUE(close(*ranks[0], Reason::Quarantined).ok());
  expect_serving();
}

TEST_F(WorkerFaults, PositionsThatJumpQuarantineTheSession) {
  for (const std::uint64_t stamp : {std::uint64_t{1000}, ~std::uint64_t{0}}) {
    auto ranks = group(2);
    ranks[1]->call(4);
    wait_for_pending(1);
    stamp_first_slot(*ranks[0], stamp);
    ranks[0]->ring_bell();
    expect_end(*ranks[1], ErrorCode::Aborted, Reason::Quarantined, 0, "rank 0");
  }
  auto ranks = group(2);
  for (Client* rank : ranks) rank->call(4);
  for (Client* rank : ranks) expect_end(*rank, ErrorCode::Ok, Reason::None, kNoRank, "");
  ranks[1]->call(4);
  ranks[0]->control().completions.head.store(77);  // it never had so many
  ranks[0]->call(4);
  for (int i = 0; i < 400 && ranks[0]->state() != ring::SessionState::Quarantined; ++i) {
    // Its ring is looked at again when it seems full: keep going until then.
    ranks[0]->call(4);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(ranks[0]->state(), ring::SessionState::Quarantined);
  expect_serving();
}

TEST_F(WorkerFaults, ASlotThatDoesNotCarryItsPositionQuarantinesTheSession) {
  auto ranks = group(2);
  ranks[1]->call(4);
  wait_for_pending(1);
  stamp_first_slot(*ranks[0], 99);
  ranks[0]->ring_bell();
  expect_end(*ranks[1], ErrorCode::Aborted, Reason::Quarantined, 0, "rank 0");
  expect_serving();
}

TEST_F(WorkerFaults, ASlowReaderHoldsUpItselfAlone) {
  auto slow = group(1, 4096, 8);
  auto quick = group(2);
  for (int i = 0; i < 8; ++i) slow[0]->call(4);
  for (int i = 0; i < 8; ++i)
    slow[0]->call(4);  // its ring of requests is full again: nothing more is read
  EXPECT_LE(inspect().sessions[0].submitted, 8u);
  for (int i = 0; i < 50; ++i) {
    for (Client* rank : quick) rank->call(4);
    for (Client* rank : quick) expect_end(*rank, ErrorCode::Ok, Reason::None, kNoRank, "");
  }
  EXPECT_LE(inspect().sessions[0].submitted, 8u);
  for (int i = 0; i < 16; ++i) expect_end(*slow[0], ErrorCode::Ok, Reason::None, kNoRank, "");
  EXPECT_EQ(inspect().sessions[0].completed, 16u);
}

}  // namespace
}  // namespace arcomm::test

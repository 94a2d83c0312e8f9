// How many descriptors wait here to be registered.
#include "daemon/control/session_ledger.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <utility>
#include <vector>

namespace arcomm {
namespace {

SessionEntry& open_for(SessionLedger& ledger, uid_t uid, bool on_gpus) {
  SessionEntry entry;
  entry.peer.uid = uid;
  entry.on_gpus = on_gpus;
  return **ledger.open(std::move(entry));
}

// Until one is refused.
std::vector<std::uint64_t> fill(SessionLedger& ledger, SessionEntry& session) {
  std::vector<std::uint64_t> tickets;
  for (;;) {
    const Result<std::uint64_t> ticket = ledger.add_offer(session, UniqueFd());
    if (!ticket) return tickets;
    tickets.push_back(*ticket);
  }
}

TEST(SessionLedger, ASessionOnTheHostOffersOneBufferAtATimeAndOneOnGpusManyPieces) {
  SessionLedger ledger;
  EXPECT_EQ(fill(ledger, open_for(ledger, 1, false)).size(), kMaxOffersOnHost);
  EXPECT_EQ(fill(ledger, open_for(ledger, 1, true)).size(), kMaxOffers);
}

TEST(SessionLedger, TheSessionsOfAUidOfferSoManyTogether) {
  SessionLedger ledger;
  std::vector<SessionEntry*> sessions;
  for (std::size_t i = 0; i < kMaxOffersOfUid / kMaxOffers; ++i) {
    sessions.push_back(&open_for(ledger, 1, true));
    ASSERT_EQ(fill(ledger, *sessions.back()).size(), kMaxOffers);
  }
  SessionEntry& more = open_for(ledger, 1, true);
  UniqueFd descriptor(::eventfd(0, EFD_CLOEXEC));
  const Result<std::uint64_t> refused = ledger.add_offer(more, std::move(descriptor));
  EXPECT_TRUE(descriptor) << "it is the caller's to close";  // NOLINT(bugprone-use-after-move)
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, Reason::Quota);
  EXPECT_NE(refused.error().message.find("sessions of uid 1"), std::string::npos);
  EXPECT_EQ(fill(ledger, open_for(ledger, 2, true)).size(), kMaxOffers) << "another uid's";

  ASSERT_TRUE(ledger.take_offer(*sessions[0], sessions[0]->offers.begin()->first).ok());
  EXPECT_FALSE(ledger.take_offer(*sessions[0], 987654321).ok());
  EXPECT_EQ(fill(ledger, more).size(), 1u);
  ASSERT_NE(ledger.close(sessions[1]->id, Reason::None, "detached"), nullptr);
  EXPECT_EQ(fill(ledger, more).size(), kMaxOffers - 1);
}

// What a later call with the old token hears.
TEST(SessionLedger, WhyASessionWasClosedIsNotLostToAnothersComingsAndGoings) {
  SessionLedger ledger;
  const auto close_one = [&](uid_t uid) {
    const SessionEntry& session = open_for(ledger, uid, false);
    const SessionId id = session.id;
    const std::string token(reinterpret_cast<const char*>(session.token.data()),
                            session.token.size());
    EXPECT_NE(ledger.close(id, Reason::Quarantined, "it broke the ring"), nullptr);
    return [&ledger, id, token, uid] {
      return ledger.authorize(id.bits(), token, uid).error().reason;
    };
  };
  const auto mine = close_one(1000);
  for (int i = 0; i < 1000; ++i) close_one(2000);
  EXPECT_EQ(close_one(2000)(), Reason::Quarantined);
  EXPECT_EQ(mine(), Reason::Quarantined);
}

}  // namespace
}  // namespace arcomm

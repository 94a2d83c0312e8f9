#include "daemon/control/session_ledger.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "daemon/telemetry/uid_range.h"

namespace arcomm {
namespace {

constexpr std::size_t kTombstones = 256;

// Constant time: how far a guess was right must not show.
bool same_token(const SessionToken& token, std::string_view shown) {
  if (shown.size() != token.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < token.size(); ++i) {
    difference |= static_cast<unsigned>(token[i]) ^ static_cast<unsigned char>(shown[i]);
  }
  return difference == 0;
}

std::uint32_t random_generation() {
  std::uint32_t drawn = 0;
  // Short reads and EINTR happen only before the kernel's generator is ready, long before a daemon.
  while (::getrandom(&drawn, sizeof(drawn), 0) < 0 && errno == EINTR) {
  }
  return drawn;
}

}  // namespace

// No session of this daemon bears the id of one of an earlier daemon, whose client may still ask
// for it.
SessionLedger::SessionLedger() : sessions_(random_generation()) {}

Result<SessionEntry*> SessionLedger::open(SessionEntry entry) {
  if (::getrandom(entry.token.data(), entry.token.size(), 0) !=
      static_cast<ssize_t>(entry.token.size())) {
    return error(ErrorCode::Internal, Reason::None,
                 "cannot draw a session token: ", std::strerror(errno));
  }
  entry.id = sessions_.next_id();
  if (entry.on_gpus) ++on_gpus_of_[first_of_range(entry.peer.uid)];
  return sessions_.find(sessions_.insert(std::make_unique<SessionEntry>(std::move(entry))));
}

SessionEntry* SessionLedger::find(SessionId id) {
  return sessions_.find(id);
}

Result<SessionEntry*> SessionLedger::authorize(std::uint64_t session, std::string_view token,
                                               uid_t uid) {
  const SessionId id = SessionId::from_bits(session);
  SessionEntry* entry = find(id);
  if (entry == nullptr) {
    for (const Tombstone& gone : tombstones_) {
      if (gone.id == id && same_token(gone.token, token)) {
        return error(ErrorCode::FailedPrecondition, gone.reason, "session ", id,
                     " was closed: ", gone.why, "; attach again");
      }
    }
    return error(ErrorCode::NotFound, Reason::UnknownHandle, "no session ", id,
                 " here: it ended or belongs to an earlier daemon; attach again");
  }
  if (!same_token(entry->token, token) || entry->peer.uid != uid) {
    return error(ErrorCode::PermissionDenied, Reason::Permission, "uid ", uid,
                 " did not prove that session ", id, " is its own: the token or the uid differs");
  }
  return entry;
}

std::unique_ptr<SessionEntry> SessionLedger::close(SessionId id, Reason reason, std::string why) {
  std::unique_ptr<SessionEntry> entry = sessions_.erase(id);
  if (entry == nullptr) return nullptr;
  forget_offers(entry->peer.uid, entry->offers.size());
  const auto on_gpus = on_gpus_of_.find(first_of_range(entry->peer.uid));
  if (entry->on_gpus && --on_gpus->second == 0) on_gpus_of_.erase(on_gpus);
  tombstones_.push_front({id, entry->peer.uid, entry->token, reason, std::move(why)});
  ++tombstones_of_[first_of_range(entry->peer.uid)];
  if (tombstones_.size() > kTombstones) forget_a_tombstone();
  return entry;
}

bool SessionLedger::has_others_on_gpus(uid_t uid) const {
  return on_gpus_of_.size() > (on_gpus_of_.contains(first_of_range(uid)) ? 1u : 0u);
}

void SessionLedger::forget_a_tombstone() {
  const auto most =
      std::ranges::max_element(tombstones_of_, {}, [](const auto& one) { return one.second; });
  const auto oldest = std::find_if(
      tombstones_.rbegin(), tombstones_.rend(),
      [user = most->first](const auto& one) { return first_of_range(one.uid) == user; });
  tombstones_.erase(std::next(oldest).base());
  if (--most->second == 0) tombstones_of_.erase(most);
}

Status SessionLedger::promise_ticket(SessionEntry& session) {
  if (session.tickets.size() + session.tickets_promised >= kMaxTickets) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "session ", session.id, " has ",
                 kMaxTickets,
                 " buffers or mailboxes whose descriptors it did not fetch: fetch them first");
  }
  ++session.tickets_promised;
  return {};
}

std::uint64_t SessionLedger::add_ticket(SessionEntry& session, std::vector<UniqueFd> fds) {
  const std::uint64_t ticket = next_ticket_++;
  session.tickets.emplace(ticket, std::move(fds));
  return ticket;
}

Result<std::vector<UniqueFd>> SessionLedger::take_ticket(SessionEntry& session,
                                                         std::uint64_t ticket) {
  auto node = session.tickets.extract(ticket);
  if (!node) {
    return error(ErrorCode::NotFound, Reason::UnknownHandle, "descriptor ticket ", ticket,
                 " is unknown to session ", session.id, " or was used: each serves once");
  }
  return std::move(node.mapped());
}

Result<std::uint64_t> SessionLedger::add_offer(SessionEntry& session, UniqueFd&& fd) {
  const std::size_t most = session.on_gpus ? kMaxOffers : kMaxOffersOnHost;
  if (session.offers.size() >= most) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "session ", session.id, " has ", most,
                 " offered descriptors that it did not register: register them first");
  }
  const auto of_uid = offers_.find(session.peer.uid);
  if (of_uid != offers_.end() && of_uid->second >= kMaxOffersOfUid) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "the sessions of uid ",
                 session.peer.uid, " have ", kMaxOffersOfUid,
                 " offered descriptors that they did not register: register them first");
  }
  ++offers_[session.peer.uid];
  const std::uint64_t ticket = next_ticket_++;
  session.offers.emplace(ticket, std::move(fd));
  return ticket;
}

Result<UniqueFd> SessionLedger::take_offer(SessionEntry& session, std::uint64_t ticket) {
  auto node = session.offers.extract(ticket);
  if (!node) {
    return error(ErrorCode::NotFound, Reason::UnknownHandle, "offered descriptor ", ticket,
                 " is unknown to session ", session.id, " or was used: each serves once");
  }
  forget_offers(session.peer.uid, 1);
  return std::move(node.mapped());
}

void SessionLedger::forget_offers(uid_t uid, std::size_t count) {
  const auto of_uid = offers_.find(uid);
  if (of_uid != offers_.end() && (of_uid->second -= count) == 0) offers_.erase(of_uid);
}

}  // namespace arcomm

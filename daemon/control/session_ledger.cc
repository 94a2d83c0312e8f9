#include "daemon/control/session_ledger.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

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

}  // namespace

SessionLedger::SessionLedger() {
  // Short reads and EINTR happen only before the kernel's generator is ready, long before a daemon.
  while (::getrandom(&first_generation_, sizeof(first_generation_), 0) < 0 && errno == EINTR) {
  }
}

Result<SessionEntry*> SessionLedger::open(SessionEntry entry) {
  if (::getrandom(entry.token.data(), entry.token.size(), 0) !=
      static_cast<ssize_t>(entry.token.size())) {
    return error(ErrorCode::Internal, Reason::None,
                 "cannot draw a session token: ", std::strerror(errno));
  }
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(slots_.size()));
    slots_.push_back({.generation = first_generation_, .entry = nullptr});
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  if (++slot.generation == 0) slot.generation = 1;  // 0 is the invalid generation
  entry.id = SessionId{index, slot.generation};
  slot.entry = std::make_unique<SessionEntry>(std::move(entry));
  ++live_;
  return slot.entry.get();
}

SessionEntry* SessionLedger::find(SessionId id) {
  if (!id.valid() || id.index >= slots_.size()) return nullptr;
  Slot& slot = slots_[id.index];
  return slot.generation == id.generation ? slot.entry.get() : nullptr;
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
  if (find(id) == nullptr) return nullptr;
  std::unique_ptr<SessionEntry> entry = std::move(slots_[id.index].entry);
  free_.insert(free_.begin(),
               id.index);  // oldest first, so that an index rests before it is used again
  --live_;
  tombstones_.push_front({id, entry->token, reason, std::move(why)});
  if (tombstones_.size() > kTombstones) tombstones_.pop_back();
  return entry;
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

Result<std::uint64_t> SessionLedger::add_offer(SessionEntry& session, UniqueFd fd) {
  if (session.offers.size() >= kMaxOffers) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "session ", session.id, " has ",
                 kMaxOffers, " offered descriptors that it did not register: register them first");
  }
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
  return std::move(node.mapped());
}

}  // namespace arcomm

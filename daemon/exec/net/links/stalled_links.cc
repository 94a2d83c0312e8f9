#include "daemon/exec/net/links/stalled_links.h"

#include <algorithm>

namespace arcomm {

void StalledLinks::look(const Links& links, std::span<const Peer> peers, std::uint64_t now_ns) {
  looked_ns_ = now_ns;
  moved_.clear();
  for (const Peer& peer : peers) moved_.push_back(links.moved_bytes(peer.id));
}

void StalledLinks::begin(const Links& links, std::span<const Peer> peers, std::uint64_t now_ns) {
  begun_ns_ = now_ns;
  look(links, peers, now_ns);
}

void StalledLinks::sever(Links& links, std::span<const Peer> peers, std::uint64_t now_ns) {
  const std::vector<std::uint64_t> before = moved_;
  look(links, peers, now_ns);
  const bool may_wait = now_ns - begun_ns_ <= kMostHeldOfMovingNs;
  const bool any_holds = std::ranges::any_of(peers, &Peer::holds);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const Peer& peer = peers[i];
    if (any_holds && !peer.holds) continue;
    if (may_wait && moved_[i] != before[i]) continue;
    links.sever(peer.id, error(ErrorCode::Unavailable, Reason::Timeout, "node ", peer.name,
                               " took no bytes for ", kMostHeldNs / 1'000'000,
                               " ms of an operation that was to end"));
  }
}

}  // namespace arcomm

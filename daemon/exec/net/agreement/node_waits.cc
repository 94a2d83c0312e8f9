#include "daemon/exec/net/agreement/node_waits.h"

#include <cstring>

#include "daemon/exec/net/agreement/node_fault.h"
#include "proto/net/message.h"

namespace arcomm {

Status NodeWaits::take(std::uint32_t node, std::uint64_t seq, std::span<const std::byte> bytes,
                       std::uint64_t now_ns) {
  const auto body = net::body_of<net::WaitingBody>(bytes);
  std::uint32_t seats = 0;
  for (std::size_t rank = 0; rank < world_.size(); ++rank)
    seats += world_.place(static_cast<Rank>(rank)).node == node ? 1 : 0;
  if (body.seats != seats)
    return fault_of(nodes_[node], "it has ", body.seats, " seats and not ", seats);
  OfNode& waits = by_node_[node];
  waits.seq = seq;
  waits.called = body.called;
  waits.heard_ns = now_ns;
  waits.pids.resize(seats);
  std::memcpy(waits.pids.data(), bytes.data() + sizeof body, seats * sizeof(std::int32_t));
  return {};
}

bool NodeWaits::has_called(Rank rank, std::uint64_t seq) const {
  const OfNode& waits = of(rank);
  if (!waits.seq) return false;
  return *waits.seq > seq ||
         (*waits.seq == seq && (waits.called >> world_.place(rank).local & 1) != 0);
}

std::optional<std::uint64_t> NodeWaits::waits_at(Rank rank) const {
  const OfNode& waits = of(rank);
  const bool is_waiting = waits.seq && (waits.called >> world_.place(rank).local & 1) != 0;
  return is_waiting ? waits.seq : std::nullopt;
}

pid_t NodeWaits::pid(Rank rank) const {
  const std::size_t seat = world_.place(rank).local;
  const OfNode& waits = of(rank);
  return seat < waits.pids.size() ? waits.pids[seat] : 0;
}

}  // namespace arcomm

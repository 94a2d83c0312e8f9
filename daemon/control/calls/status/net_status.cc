#include "daemon/control/calls/status/net_status.h"

#include <fmt/format.h>

#include <set>
#include <string>

namespace arcomm {
namespace {

template <typename Duration>
std::uint64_t ms_of(Duration duration) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

std::string instance_text(PeerId instance) {
  return instance == 0 ? std::string() : fmt::format("{:016x}", instance);
}

const char* text_of(Peer::State state) {
  switch (state) {
    case Peer::State::Unknown:
      return "unknown";
    case Peer::State::Alive:
      return "alive";
    case Peer::State::Unreachable:
      return "unreachable";
    case Peer::State::Refused:
      return "refused";
    case Peer::State::Self:
      return "self";
  }
  return "unknown";
}

const char* text_of(PeerLinks::State state) {
  switch (state) {
    case PeerLinks::State::Down:
      return "down";
    case PeerLinks::State::Up:
      return "up";
    case PeerLinks::State::Asking:
    case PeerLinks::State::Connecting:
    case PeerLinks::State::Collecting:
    case PeerLinks::State::Opening:
      return "being made";
  }
  return "down";
}

void fill(const Peer& peer, v1::NetPeer& told) {
  told.set_address(peer.address());
  told.set_name(peer.node().name);
  told.set_instance(instance_text(peer.node().instance));
  told.set_state(text_of(peer.state()));
  told.set_configured(peer.is_configured());
  if (peer.state() == Peer::State::Unreachable || peer.state() == Peer::State::Refused)
    told.set_why(peer.why().message);
  if (peer.state() != Peer::State::Alive) return;
  told.set_round_trip_ns(static_cast<std::uint64_t>(peer.round_trip().count()));
  told.set_silent_ms(ms_of(peer.silent_for()));
}

void fill(const PeerLinks::Link& link, const std::string& worker, v1::NetLink& told) {
  told.set_peer(link.peer.address);
  told.set_name(link.peer.name);
  told.set_worker(worker);
  told.set_state(text_of(link.state));
  if (link.state != PeerLinks::State::Up) told.set_why(link.why.message);
  told.set_streams(
      static_cast<std::uint32_t>(link.streams.size() == 0 ? 0 : link.streams.size() - 1));
  told.set_rails(static_cast<std::uint32_t>(
      std::set<std::uint32_t>(link.streams.rails().begin(), link.streams.rails().end()).size()));
  told.set_age_ms(ms_of(EventLoop::Clock::now() - link.since));
}

void fill_traffic(const WorkerSnapshot& worker, PeerId peer, v1::NetLink& told) {
  constexpr std::uint64_t kNsPerUs = 1000;
  for (const LinkSnapshot& link : worker.links) {
    if (link.peer != peer) continue;
    told.set_sent_bytes(link.sent_bytes);
    told.set_received_bytes(link.received_bytes);
    told.set_retransmits(link.retransmits);
    told.set_round_trip_ns(link.rtt_us * kNsPerUs);
    told.set_delivered_bytes_per_second(link.delivered_bytes_per_second);
    told.set_waited_for_peer_ns(link.waited_for_peer_us * kNsPerUs);
    told.set_waited_for_buffer_ns(link.waited_for_buffer_us * kNsPerUs);
  }
}

}  // namespace

v1::NetReply net_status(Peers& peers, const std::vector<Result<WorkerSnapshot>>& views) {
  v1::NetReply reply;
  const PeerTable& table = peers.table();
  reply.set_address(table.self().address);
  reply.set_name(table.self().name);
  reply.set_instance(instance_text(table.self().instance));
  reply.set_listen(peers.listens_on());
  reply.set_tls(peers.is_tls());
  for (const auto& [address, peer] : table.peers()) fill(*peer, *reply.add_peers());
  PeerLinks& links = peers.links();
  std::size_t endpoint = 0;
  for (const net::InterfaceChoice& choice : links.ports().choices()) {
    v1::NetInterface& told = *reply.add_interfaces();
    told.set_name(choice.interface.name);
    told.set_host(choice.interface.host);
    told.set_chosen(choice.is_chosen);
    told.set_why(choice.why);
    told.set_speed_mbits(choice.interface.speed_mbits);
    if (choice.is_chosen && links.ports().is_open())
      told.set_address(links.ports().endpoint(endpoint++).address().to_string());
  }
  for (const auto& [name, link] : links.links()) {
    v1::NetLink& told = *reply.add_links();
    fill(link, links.worker_name(link.worker), told);
    if (link.worker < views.size() && views[link.worker])
      fill_traffic(*views[link.worker], link.peer.instance, told);
  }
  reply.set_strangers_turned_away(peers.turned_away());
  reply.set_daemons_refused(peers.refused());
  reply.set_last_refused(peers.last_refused().message);
  return reply;
}

}  // namespace arcomm

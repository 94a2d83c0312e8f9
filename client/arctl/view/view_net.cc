#include <cstdio>

#include "client/arctl/command_line/units.h"
#include "client/arctl/view/table.h"
#include "client/arctl/view/views.h"

namespace arcomm::arctl {
namespace {

constexpr double kNsPerUs = 1e3;
constexpr double kNsPerSecond = 1e9;

// "84 us"; "" where it is not known.
std::string round_trip_text(std::uint64_t ns) {
  if (ns == 0) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.0f us", static_cast<double>(ns) / kNsPerUs);
  return text;
}

// "1.2 GiB/s"; "" where it is not known.
std::string rate_text(std::uint64_t bytes_per_second) {
  return bytes_per_second == 0 ? "" : human_bytes(bytes_per_second) + "/s";
}

Colour colour_of(const std::string& state) {
  if (state == "alive" || state == "up") return Colour::Green;
  if (state == "self" || state == "unknown" || state == "being made") return Colour::Plain;
  return state == "refused" ? Colour::Red : Colour::Yellow;
}

std::string peers_text(const v1::NetReply& reply, bool colour) {
  Table table({{"PEER"}, {"NAME"}, {"STATE"}, {"ROUND TRIP", Align::Right}, {"INSTANCE"}, {"WHY"}});
  for (const v1::NetPeer& peer : reply.peers()) {
    table.add({peer.address(),
               peer.name(),
               {peer.state(), colour_of(peer.state())},
               round_trip_text(peer.round_trip_ns()),
               peer.instance(),
               peer.why().empty() && !peer.configured() ? "not in net.peers: it came by itself"
                                                        : peer.why()});
  }
  return table.empty() ? std::string() : "\n" + table.text(colour);
}

std::string links_text(const v1::NetReply& reply, bool colour) {
  Table table({{"LINK TO"},
               {"OF"},
               {"STATE"},
               {"STREAMS", Align::Right},
               {"RAILS", Align::Right},
               {"SENT", Align::Right},
               {"RECEIVED", Align::Right},
               {"RATE", Align::Right},
               {"HELD UP", Align::Right},
               {"ROUND TRIP", Align::Right},
               {"RESENT", Align::Right},
               {"WHY"}});
  for (const v1::NetLink& link : reply.links()) {
    table.add({link.name().empty() ? link.peer() : link.name(),
               link.worker(),
               {link.state(), colour_of(link.state())},
               std::to_string(link.streams()),
               std::to_string(link.rails()),
               human_bytes(link.sent_bytes()),
               human_bytes(link.received_bytes()),
               rate_text(link.delivered_bytes_per_second()),
               human_us(static_cast<double>(link.waited_for_peer_ns()) / kNsPerUs),
               round_trip_text(link.round_trip_ns()),
               std::to_string(link.retransmits()),
               link.why()});
  }
  return table.empty() ? std::string() : "\n" + table.text(colour);
}

std::string interfaces_text(const v1::NetReply& reply, bool colour) {
  Table table({{"INTERFACE"}, {"ADDRESS"}, {"DATA"}, {"WHY"}});
  for (const v1::NetInterface& one : reply.interfaces()) {
    table.add({one.name(), one.host(),
               one.chosen() ? Cell(one.address(), Colour::Green) : Cell("no"), one.why()});
  }
  return table.empty() ? std::string() : "\n" + table.text(colour);
}

// What is not zero: "3 late, 1 damaged".
std::string dropped_text(const v1::NetReply& reply) {
  std::string text;
  for (const v1::NetDropped& one : reply.dropped()) {
    if (one.frames() == 0) continue;
    text +=
        (text.empty() ? "" : ", ") + std::to_string(one.frames()) + " " + printable(one.reason());
  }
  return text.empty() ? text : "\nframes of other daemons that were dropped: " + text + "\n";
}

}  // namespace

std::string net_text(const v1::NetReply& reply, bool colour) {
  if (reply.instance().empty())
    return "this daemon knows no other: name them in net.peers (man arcommd.toml)\n";
  std::string out =
      painted(printable(reply.name()), Colour::Bold, colour) + "  " +
      printable(reply.address().empty() ? "looks for itself in net.peers" : reply.address()) +
      "  instance " + reply.instance() + "  called on " + printable(reply.listen()) +
      (reply.tls() ? " (TLS)" : "") + "\n";
  out += peers_text(reply, colour) + links_text(reply, colour) + interfaces_text(reply, colour);
  out += dropped_text(reply);
  if (reply.daemons_refused() > 0) {
    out += "\n" + std::to_string(reply.daemons_refused()) +
           " greetings of daemons were refused, the last: " + printable(reply.last_refused()) +
           "\n";
  }
  if (reply.strangers_turned_away() > 0)
    out += "\n" + std::to_string(reply.strangers_turned_away()) +
           " connections of strangers were turned away\n";
  return out;
}

Json net_json(const v1::NetReply& reply) {
  Json peers = Json::array(), interfaces = Json::array(), links = Json::array();
  Json dropped = Json::object();
  for (const v1::NetDropped& one : reply.dropped()) dropped[one.reason()] = one.frames();
  for (const v1::NetPeer& peer : reply.peers()) {
    peers.push_back(
        {{"address", peer.address()},
         {"name", peer.name()},
         {"instance", peer.instance()},
         {"state", peer.state()},
         {"why", peer.why()},
         {"configured", peer.configured()},
         {"round_trip_s", json_number(static_cast<double>(peer.round_trip_ns()) / kNsPerSecond)},
         {"silent_ms", peer.silent_ms()}});
  }
  for (const v1::NetInterface& one : reply.interfaces()) {
    interfaces.push_back({{"name", one.name()},
                          {"host", one.host()},
                          {"chosen", one.chosen()},
                          {"why", one.why()},
                          {"speed_mbits", one.speed_mbits()},
                          {"address", one.address()}});
  }
  for (const v1::NetLink& link : reply.links()) {
    links.push_back(
        {{"peer", link.peer()},
         {"name", link.name()},
         {"worker", link.worker()},
         {"state", link.state()},
         {"why", link.why()},
         {"streams", link.streams()},
         {"rails", link.rails()},
         {"age_ms", link.age_ms()},
         {"sent_bytes", link.sent_bytes()},
         {"received_bytes", link.received_bytes()},
         {"round_trip_s", json_number(static_cast<double>(link.round_trip_ns()) / kNsPerSecond)},
         {"retransmits", link.retransmits()},
         {"delivered_bytes_per_second", link.delivered_bytes_per_second()},
         {"waited_for_peer_s",
          json_number(static_cast<double>(link.waited_for_peer_ns()) / kNsPerSecond)},
         {"waited_for_buffer_s",
          json_number(static_cast<double>(link.waited_for_buffer_ns()) / kNsPerSecond)}});
  }
  return {{"address", reply.address()},
          {"name", reply.name()},
          {"instance", reply.instance()},
          {"listen", reply.listen()},
          {"tls", reply.tls()},
          {"peers", std::move(peers)},
          {"interfaces", std::move(interfaces)},
          {"links", std::move(links)},
          {"dropped", std::move(dropped)},
          {"strangers_turned_away", reply.strangers_turned_away()},
          {"daemons_refused", reply.daemons_refused()},
          {"last_refused", reply.last_refused()}};
}

}  // namespace arcomm::arctl

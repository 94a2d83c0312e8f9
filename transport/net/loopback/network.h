// A network inside of one process, with a clock of its own, for tests and simulations: it delays,
// it lets connections overtake each other, it is cut, hosts die, bits flip; the same seed gives the
// same run. Hosts are the host parts of addresses, and need no interface.
// Thread: one, for the network and everything on it. Outlives its endpoints.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/net/frame.h"
#include "transport/net/addresses/address.h"

namespace arcomm::net {

class LoopbackEndpoint;

class LoopbackNetwork {
 public:
  using Duration = std::chrono::nanoseconds;
  using Time = std::chrono::time_point<LoopbackNetwork, Duration>;

  // What a frame meets between two hosts. Each frame's delay is drawn anew, but a connection keeps
  // its order: only frames of different connections overtake each other.
  struct Weather {
    Duration least_delay{std::chrono::microseconds(10)};
    Duration most_delay{std::chrono::microseconds(10)};
    double bytes_per_second = 10e9;  // of each connection, each way
  };

  // Bytes on the way in one direction of a connection.
  struct Direction {
    struct Flight {
      Time sent, arrives;
      std::vector<std::byte> bytes;  // header and payload
    };
    std::string from, to;  // hosts
    std::deque<Flight> flights;
    Time busy_until{};     // the last byte has left the sender
    bool is_over = false;  // the sender is gone: after the flights there is nothing
  };

  explicit LoopbackNetwork(std::uint64_t seed) : random_(seed) {}
  LoopbackNetwork(const LoopbackNetwork&) = delete;
  LoopbackNetwork& operator=(const LoopbackNetwork&) = delete;

  Time now() const { return now_; }
  void advance(Duration by) { now_ += by; }

  // Between all hosts, or between two of them, both ways, from now on.
  void set_weather(const Weather& weather) { everywhere_ = weather; }
  void set_weather(const std::string& one, const std::string& other, const Weather& weather) {
    between_[pair_of(one, other)] = weather;
  }

  // Nothing arrives between the two until heal(); what is sent meanwhile arrives after it, as TCP
  // would send it again.
  void cut(const std::string& one, const std::string& other) { cuts_.insert(pair_of(one, other)); }
  void heal(const std::string& one, const std::string& other) { cuts_.erase(pair_of(one, other)); }
  // The host is gone: its connections end, at the others' side too, and nobody answers there.
  void kill(const std::string& host) { dead_.insert(host); }
  // Changes a bit of the next frame that is sent from one to the other.
  void corrupt_next(const std::string& from, const std::string& to) { corrupt_.insert({from, to}); }
  // What no network does to a stream, but a broken or hostile host: the next frame that is sent
  // from one to the other goes there twice, or not at all.
  void repeat_next(const std::string& from, const std::string& to) { repeat_.insert({from, to}); }
  void lose_next(const std::string& from, const std::string& to) { lose_.insert({from, to}); }

  bool is_cut(const std::string& one, const std::string& other) const {
    return cuts_.contains(pair_of(one, other));
  }
  bool is_dead(const std::string& host) const { return dead_.contains(host); }

  // For endpoints and connections. send(): the bytes were copied when it returns.
  Duration draw_delay(const std::string& one, const std::string& other);
  void send(Direction& direction, const FrameHeader& header, std::span<const std::byte> payload);
  // The bytes that have arrived; nullptr: none yet.
  const Direction::Flight* arrived(const Direction& direction) const;
  // 0: a port that is free.
  Result<Address> enter(LoopbackEndpoint& endpoint, Address address);
  void leave(const Address& address) { endpoints_.erase(address.to_string()); }
  LoopbackEndpoint* endpoint_at(const Address& address) const;

 private:
  using Pair = std::pair<std::string, std::string>;
  static Pair pair_of(const std::string& one, const std::string& other) {
    return one < other ? Pair{one, other} : Pair{other, one};
  }
  const Weather& weather_of(const std::string& one, const std::string& other) const;

  Time now_{};
  std::mt19937_64 random_;
  Weather everywhere_;
  std::map<Pair, Weather> between_;
  std::set<Pair> cuts_;
  std::set<std::string> dead_;
  std::set<Pair> corrupt_, repeat_, lose_;  // from, to
  std::map<std::string, LoopbackEndpoint*> endpoints_;
  std::uint16_t next_port_ = 1024;
};

}  // namespace arcomm::net

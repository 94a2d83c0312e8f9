// Messages for communicators that are not there yet: another node was told sooner that one is to be
// formed. Bounded in bytes, for each communicator and for all, and in time. Thread: the worker's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "daemon/exec/specs.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "proto/net/message.h"

namespace arcomm {

class EarlyMessages {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{8} << 20;
  static constexpr std::size_t kMostBytesOfOne = std::size_t{256} << 10;
  static constexpr std::uint64_t kLongestNs = 30'000'000'000;

  struct Kept {
    PeerId from = 0;
    net::FrameHeader names;
    net::MessageKind kind = net::MessageKind::Offer;
    std::vector<std::byte> body;
    std::uint64_t since_ns = 0;
    net::Message message() const { return {kind, body}; }
  };

  void keep(PeerId from, const net::FrameHeader& names, const net::Message& message,
            std::uint64_t now_ns);
  // Those of one communicator, in order; they are gone from here.
  std::vector<Kept> take(std::uint64_t communicator);
  // Some of a communicator's were dropped, as there were too many, or they too old, or their link
  // has gone: it cannot be formed, for they are not sent again.
  bool has_lost(std::uint64_t communicator) const;
  void forget(PeerId from);
  void forget_old(std::uint64_t now_ns);
  // It was, and is no more: what comes for it is dropped, as one of these is.
  void end(std::uint64_t communicator);
  bool has_ended(std::uint64_t communicator) const;

  // What was dropped since the last call, but for what take() gave out.
  NetDropCounts take_dropped() { return std::exchange(dropped_, {}); }
  std::size_t bytes() const { return bytes_; }
  bool empty() const { return kept_.empty(); }

 private:
  static constexpr std::size_t kMostRemembered = 1024;
  void note_lost(std::uint64_t communicator);
  void drop(std::deque<Kept>::iterator which);  // for it has waited in vain
  void count(NetDrop why) { ++dropped_[static_cast<std::size_t>(why)]; }

  std::deque<Kept> kept_;  // in the order in which they came
  std::size_t bytes_ = 0;
  NetDropCounts dropped_{};
  std::deque<std::uint64_t> ended_, lost_;  // the last kMostRemembered
};

}  // namespace arcomm

// Of communicators that met here and hold, as far as this daemon knows, which ranks are on which
// nodes: whoever calls for one of them elsewhere can be told where it is, once that node has said
// that it still is. Bounded: the oldest are forgotten. Thread: the control loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "daemon/comm/unique_id.h"
#include "daemon/control/peers/peer_messenger.h"
#include "proto/types.h"

namespace arcomm {

class HeldRanks {
 public:
  static constexpr std::size_t kMost = 4096;

  struct Member {
    PeerNode peer;
    std::vector<Rank> ranks;
  };
  struct Held {
    std::uint64_t communicator = 0, epoch = 0;
    std::vector<Member> members;
  };
  void hold(const UniqueIdBytes& unique_id, Held held);
  void forget(const UniqueIdBytes& unique_id, std::uint64_t communicator);
  void forget(PeerId lost);  // what it had ranks in has ended

  struct Holder {
    PeerNode peer;
    Rank rank = kNoRank;
    std::uint64_t communicator = 0, epoch = 0;
  };
  // Who has one of these ranks, but for `from` itself.
  std::optional<Holder> find(const UniqueIdBytes& unique_id, PeerId from,
                             const std::vector<Rank>& ranks) const;
  bool knows(const UniqueIdBytes& unique_id) const { return held_.contains(unique_id); }
  std::size_t size() const { return held_.size(); }

 private:
  std::map<UniqueIdBytes, Held> held_;
  std::deque<UniqueIdBytes> by_age_;
};

}  // namespace arcomm

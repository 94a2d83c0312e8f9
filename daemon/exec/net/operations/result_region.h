// The memory of this node's first seat that peers put their parts of one operation's results into:
// theirs from when it is told until it is taken back. Thread: the worker's; the bytes arrive on the
// streams' threads. May be used again when end() has said true.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "daemon/exec/net/node_group.h"
#include "proto/status.h"
#include "transport/net/regions.h"

namespace arcomm {

class ResultRegion {
 public:
  // Tells all peers. ResourceExhausted where there are too many regions.
  Status begin(NodeGroup& group, std::uint64_t seq, std::span<std::byte> memory,
               std::uint64_t chunks);
  // Is this chunk of the results there?
  bool has(std::uint64_t chunk) const {
    return signals_[chunk].load(std::memory_order_acquire) != 0;
  }
  // Nobody puts anything there any more, and nobody's bytes are on their way into it. Again: asks
  // again.
  bool end();
  // Payloads that came changed. Precondition: begun, and end() has not been called.
  net::Regions::Damage damage() const { return group_->links().regions()->damaged(region_); }

 private:
  NodeGroup* group_ = nullptr;
  net::RegionId region_ = 0;  // 0: none
  std::unique_ptr<net::SignalWord[]> signals_;
  std::uint64_t room_ = 0;  // of signals_
};

}  // namespace arcomm

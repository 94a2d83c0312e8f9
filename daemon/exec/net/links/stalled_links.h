// The links of an operation that is to end while bytes of it are under way: a peer that still holds
// some so long after it was told, and on whose link nothing has moved meanwhile, loses its link.
// This is for one that has frozen with a frame half way, and long enough that a busy machine does
// not look like it. Where something moves the bytes may be waiting their turn behind other
// communicators' payloads, for as long as a peer may be silent. Thread: the worker's.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/exec/net/links/links.h"

namespace arcomm {

class StalledLinks {
 public:
  static constexpr std::uint64_t kMostHeldNs = 500'000'000;
  static constexpr std::uint64_t kMostHeldOfMovingNs = 10'000'000'000;

  struct Peer {
    PeerId id = 0;
    std::string_view name;
    bool holds = false;  // bytes of the operation have not come back from its link
  };

  // The operation is told to end.
  void begin(const Links& links, std::span<const Peer> peers, std::uint64_t now_ns);
  bool has_begun() const { return begun_ns_ != 0; }
  // Whether it is time to look. False before begin().
  bool is_due(std::uint64_t now_ns) const {
    return has_begun() && now_ns - looked_ns_ > kMostHeldNs;
  }
  // Severs those of begin()'s peers, given in the same order, that have stalled since the last
  // look. Where none of them holds bytes all are asked, as nobody knows whose are half way into a
  // region.
  void sever(Links& links, std::span<const Peer> peers, std::uint64_t now_ns);

 private:
  void look(const Links& links, std::span<const Peer> peers, std::uint64_t now_ns);

  std::uint64_t begun_ns_ = 0, looked_ns_ = 0;
  std::vector<std::uint64_t> moved_;  // on each peer's link, by then
};

}  // namespace arcomm

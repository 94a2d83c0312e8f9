// Between a TCP connection's two ends: passes on what they say, and does to a frame what a broken
// or hostile daemon might. Thread: one, which calls step().
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "proto/unique_fd.h"
#include "tests/conformance/net/kinds.h"

namespace arcomm::net {

class FrameRelay {
 public:
  // For one connection to `peer`; listens at `host`.
  FrameRelay(const std::string& host, Address peer);

  const Address& address() const { return address_; }
  // The next frame that has not come here, of who connects.
  void tamper_next(Tampering how) { how_ = how; }
  // Moves what can be moved now.
  void step();

 private:
  void pass_on_frames();

  Address address_;
  const Address peer_;
  UniqueFd listener_, from_, to_;
  std::vector<std::byte> come_, there_, back_;  // not a whole frame yet; on their way
  std::optional<Tampering> how_;
};

}  // namespace arcomm::net

// The keys by which data connections are told from strangers': each is good for one connection, and
// for as long as its link is being made. Thread: the control loop.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "daemon/exec/specs.h"
#include "proto/net/frame.h"
#include "proto/status.h"
#include "transport/net/endpoint.h"

namespace arcomm {

// A link of this daemon's: to whom, and of which of its workers.
using LinkName = std::pair<PeerId, std::size_t>;

class LinkKeys {
 public:
  struct Made {
    net::Secret key{}, answer{};
  };
  // For one connection, which is `stream` of `link`.
  Result<Made> make(const LinkName& link, std::uint32_t stream, std::string peer);
  void drop(const LinkName& link);  // those that were not used

  // As net::CheckKey; the key is used up.
  Result<net::Guest> take(const net::HelloKey& shown);
  struct Taken {
    LinkName link;
    std::uint32_t stream = 0;
  };
  // Whose key was the last that was taken; once.
  std::optional<Taken> last() { return std::exchange(last_, std::nullopt); }
  std::size_t size() const { return keys_.size(); }

 private:
  struct Entry {
    Taken what;
    net::Guest guest;
  };
  std::map<net::Secret, Entry> keys_;
  std::optional<Taken> last_;
};

}  // namespace arcomm

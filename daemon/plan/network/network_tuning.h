// What `arctl tune --network` measured: how fast the links of this daemon to its peers are. A
// value: immutable once shared, so any thread may read it. It holds for this node, these peers and
// these connections alone: what was measured under others is refused when it is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/status.h"

namespace arcomm {

struct LinkFigures {
  std::string address = {};            // of the peer, as net.peers has it
  std::string name = {};               // for people
  double latency_us = 0;               // of a small message, one way
  std::uint64_t bytes_per_second = 0;  // each way while both are used, in the faster of two ways
  bool without_copies = false;  // which one that is: whether the kernel sends without copying

  // What the link carries in the time that a message takes.
  std::uint64_t step_bytes() const;
  friend bool operator==(const LinkFigures&, const LinkFigures&) = default;
};

struct NetworkTuning {
  std::string source = {};    // the file, for people; "": nothing was measured
  std::string node = {};      // the name of the daemon that measured
  std::uint64_t streams = 0;  // net.streams and net.interfaces, as they were
  std::string interfaces = {};
  std::vector<LinkFigures> links = {};  // sorted by address

  const LinkFigures* find(std::string_view address) const;
  // The link over which a MiB takes longest: who waits for all waits for it. Null where there is
  // none.
  const LinkFigures* slowest() const;
  // For the policy of communicators that meet here: of the slowest link, within its bounds; the
  // usual one where nothing was measured.
  std::uint64_t step_bytes() const;
  // Likewise; 0 where nothing was measured.
  std::uint64_t bytes_per_second() const;
  void put(LinkFigures figures);  // in the place of what was known of that peer

  friend bool operator==(const NetworkTuning& a, const NetworkTuning& b) {
    return a.node == b.node && a.streams == b.streams && a.interfaces == b.interfaces &&
           a.links == b.links;
  }
};

// What a file must have been measured under.
struct NetworkSetup {
  std::string node;                // net.name, or what the host is called
  std::uint64_t streams = 0;       // net.streams
  std::string interfaces;          // net.interfaces
  std::vector<std::string> peers;  // net.peers
};

// InvalidArgument/BadConfig with file, line and key for a text that is no such table, and for one
// that was measured by another node, with other settings, or with peers that net.peers does not
// name.
Result<NetworkTuning> parse_network_tuning(std::string_view toml, std::string_view name,
                                           const NetworkSetup& setup);
// NotFound where there is no such file.
Result<NetworkTuning> load_network_tuning(const std::string& path, const NetworkSetup& setup);
// Valid TOML that parse_network_tuning() reads back to an equal table.
std::string print_network_tuning(const NetworkTuning& tuning);

}  // namespace arcomm

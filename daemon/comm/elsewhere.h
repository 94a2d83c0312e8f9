// What this node knows of a communicator's ranks on other nodes, which is late by what messages
// take. Owned by the communicator. Thread: the worker's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "proto/types.h"

namespace arcomm {

class Elsewhere {
 public:
  virtual ~Elsewhere() = default;
  // The name of a rank's node, this one's too, and what tells it from all others.
  virtual std::string_view node_name(Rank rank) const = 0;
  virtual std::uint64_t node_id(Rank rank) const = 0;
  // The following of ranks of other nodes.
  virtual bool has_called(Rank rank, std::uint64_t seq) const = 0;
  // In which it has called, and waits for others since a while; nothing where that is not known.
  virtual std::optional<std::uint64_t> waits_at(Rank rank) const = 0;
  virtual bool anybody_waits() const = 0;  // waits_at() any of them
  virtual pid_t pid(Rank rank) const = 0;  // 0: not known
};

}  // namespace arcomm

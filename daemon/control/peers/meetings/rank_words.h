// How errors about meetings name ranks. Any thread.
#pragma once

#include <sstream>
#include <string>
#include <utility>

#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

// "rank 3", "ranks 1, 2".
template <typename Ranks>
std::string list_of(const Ranks& ranks) {
  std::ostringstream text;
  const char* comma = "";
  for (const Rank rank : ranks) text << std::exchange(comma, ", ") << rank;
  return (ranks.size() == 1 ? "rank " : "ranks ") + text.str();
}

inline Error with_culprit(Error why, Rank rank) {
  why.rank = rank;
  return why;
}

}  // namespace arcomm

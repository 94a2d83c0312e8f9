// An answer to `arctl tune --explain SIZE`: what is chosen for an operation, and what came second,
// whoever explains it: explain.h on one node, network/explain_network.h between several.
#pragma once

#include <string>
#include <string_view>

namespace arcomm {

struct Explanation {
  std::string text;  // a few lines for people
  std::string_view chosen;
  std::string_view runner_up;         // the same as `chosen` where there is no other
  double chosen_microseconds = 0;     // 0 where never measured
  double runner_up_microseconds = 0;  // likewise
};

}  // namespace arcomm

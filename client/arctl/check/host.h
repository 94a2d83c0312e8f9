// The self-test on the host: rank processes reduce every type with every operation in several
// sizes, in place and out of place, and each element is checked. One thread.
#pragma once

#include <string>
#include <vector>

#include "client/arctl/command_line/invocation.h"
#include "client/arctl/view/json.h"
#include "proto/types.h"

namespace arcomm::arctl {

struct HostTypeCheck {
  DType dtype = DType::Float32;
  std::uint64_t operations = 0, bytes = 0, wrong = 0;
  double slowest_us = 0;
};

struct HostCheck {
  int ranks = 0;
  std::vector<HostTypeCheck> types;

  std::uint64_t wrong() const;
};

// An error ends the test: it names the operation, and the rank where it is one rank's.
Result<HostCheck> check_host(const Invocation& invocation, int ranks);

std::string host_check_text(const HostCheck& check, bool colour);
Json host_check_json(const HostCheck& check);  // of the types

}  // namespace arcomm::arctl

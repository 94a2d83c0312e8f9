// A rank process: loads its shard, joins the communicator, answers requests until the front end
// hangs up. Thread: runs in the caller's, which is the process's only one.
#pragma once

#include <cstdint>
#include <string>

#include "client/examples/tensor_parallel_lm/serving/channel.h"
#include "client/examples/tensor_parallel_lm/serving/generate.h"
#include "client/include/arclient.h"

namespace lm {

struct RankOptions {
  int rank = 0;
  int ranks = 1;
  std::string weights_path;
  arcCodec_t codec = arcCodecNone;
  std::string record_path;  // of this rank; "": nothing is recorded
};
// Where a request's time went, of one rank.
struct AllReduceCost {
  std::uint64_t calls = 0;
  double seconds = 0;
};
struct Reply {
  Generation generation;
  AllReduceCost all_reduce;
};

// Throws std::runtime_error.
void serve(const RankOptions& options, Channel& front_end);

// What passes over the channel.
std::string encode(const Request& request);
std::string encode(const Reply& reply);
Request decode_request(const std::string& message);
Reply decode_reply(const std::string& message);

}  // namespace lm

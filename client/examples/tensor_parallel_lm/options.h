// The command line of tensor_parallel_lm. Ownership: plain values.
#pragma once

#include <string>
#include <vector>

#include "client/examples/tensor_parallel_lm/training/train.h"
#include "client/include/arclient.h"

namespace lm {

struct Options {
  int ranks = 2;
  std::vector<std::string> prompts;
  std::size_t bytes = 160;  // to generate for each prompt
  float temperature = 0.7F;
  TrainOptions train;
  std::vector<std::string> files;
  arcCodec_t codec = arcCodecNone;  // of the ranks' communicator
  bool with_all_codecs = false;     // the loss with each of them, besides
  std::string record_path;          // "": nothing is recorded
  bool is_quick = false;
  bool wants_help = false;
};

const char* usage();
// Throws std::invalid_argument, saying which argument and why.
Options parse_options(int argc, char** argv);

}  // namespace lm

// From prompts to text: prefill each prompt, then decode all of them together, one byte per step.
// Thread: runs in the caller's. Determinism: the same logits and the same Request give the same
// bytes; so ranks that sample for themselves agree without telling each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/examples/tensor_parallel_lm/model/transformer.h"

namespace lm {

inline constexpr std::size_t kMostRows = 64;  // of one forward pass: the size of the ranks' buffers
inline constexpr std::size_t kMostPrompts = 16;  // decoded together; at most kMostRows

struct Request {
  std::vector<std::string> prompts;  // each at least one byte
  std::uint64_t bytes = 0;           // to generate for each; 0: the prompts' loss is all
  float temperature = 0;             // 0: always the likeliest byte
  std::uint64_t seed = 0;            // of the sampling
};
struct Generation {
  std::vector<std::string> texts;  // without the prompts
  std::uint64_t logits_digest =
      0;  // of the bits of every logit on the way: equal digests, equal arithmetic
  double seconds = 0;
  double loss = 0;  // of prompts to which nothing is added: nats per byte, but their first ones
};
Generation generate(Transformer& transformer, const Request& request);

}  // namespace lm

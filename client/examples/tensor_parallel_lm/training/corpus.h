// The text to train on. Ownership: plain values. Throws std::runtime_error, naming the file and
// what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lm {

struct Corpus {
  std::vector<std::uint8_t> text;
  std::size_t files = 0;
};

// The files' bytes, one after the other.
Corpus read_corpus(const std::vector<std::string>& paths);
// The documents of a source tree: every *.md under it outside build and hidden folders, and
// LICENSE; sorted.
std::vector<std::string> documents_in(const std::string& folder);

}  // namespace lm

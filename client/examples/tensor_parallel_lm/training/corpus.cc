#include "client/examples/tensor_parallel_lm/training/corpus.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace lm {

namespace fs = std::filesystem;

Corpus read_corpus(const std::vector<std::string>& paths) {
  Corpus corpus;
  for (const std::string& path : paths) {
    if (!fs::is_regular_file(path))
      throw std::runtime_error(path + " is not a file: name text files to train on");
    std::ifstream file(path, std::ios::binary);
    corpus.text.insert(corpus.text.end(), std::istreambuf_iterator<char>(file),
                       std::istreambuf_iterator<char>());
    if (file.bad() || !file.is_open()) throw std::runtime_error("cannot read " + path);
    ++corpus.files;
  }
  return corpus;
}

std::vector<std::string> documents_in(const std::string& folder) {
  std::vector<std::string> documents;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                         error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const fs::path& path = entry->path();
    const std::string name = path.filename().string();
    if (entry->is_directory() &&
        (name.front() == '.' || name == "build" || name == "third_party")) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && (path.extension() == ".md" || name == "LICENSE")) {
      documents.push_back(path.string());
    }
  }
  std::sort(documents.begin(), documents.end());
  return documents;
}

}  // namespace lm

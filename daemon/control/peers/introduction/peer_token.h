// What all daemons know and nobody else (net.token_file), and how one shows another that it knows
// it: an HMAC-SHA256 of what both have said. It is never sent, logged or copied out. A value; any
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

#include "proto/status.h"

namespace arcomm {

class PeerToken {
 public:
  static constexpr std::size_t kLeastBytes = 16, kMostBytes = 4096;

  // The file's words, without white space at the end. PermissionDenied where others than its owner
  // may read or change it, or the owner is neither this user nor root; BadConfig where it is
  // missing, too short or too long. "": an empty token, for daemons that TLS lets know each other.
  static Result<PeerToken> read(const std::string& file);
  explicit PeerToken(std::string words) : words_(std::move(words)) {}

  // Over the parts with their lengths, so that no part can be taken for another.
  std::string prove(std::initializer_list<std::string_view> parts) const;

 private:
  std::string words_;
};

// In a time that says nothing of where they differ.
bool equal_secrets(std::string_view a, std::string_view b);
// 32 bytes that nobody can guess. Unavailable when the machine has none.
Result<std::string> random_secret();

// A key, too, is read only if nobody else may read it.
Result<std::string> read_secret_file(const std::string& file, std::string_view setting,
                                     std::size_t most_bytes);
// As it is: certificates are no secrets.
Result<std::string> read_small_file(const std::string& file, std::string_view setting,
                                    std::size_t most_bytes);

}  // namespace arcomm

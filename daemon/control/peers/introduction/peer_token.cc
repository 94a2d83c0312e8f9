#include "daemon/control/peers/introduction/peer_token.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "proto/unique_fd.h"

namespace arcomm {
namespace {

constexpr std::size_t kSecretBytes = 32;

Error wrong_file(std::string_view setting, const std::string& file, std::string_view why) {
  return error(ErrorCode::InvalidArgument, Reason::BadConfig, setting, " (", file, ") ", why);
}

Status check_owner(const struct stat& found, std::string_view setting, const std::string& file) {
  if ((found.st_mode & 077) != 0) {
    return error(ErrorCode::PermissionDenied, Reason::Permission, setting, " (", file,
                 ") can be used by others than its owner: chmod 0600 it");
  }
  if (found.st_uid != ::geteuid() && found.st_uid != 0) {
    return error(ErrorCode::PermissionDenied, Reason::Permission, setting, " (", file,
                 ") belongs to uid ", found.st_uid, ", and the daemon runs as uid ", ::geteuid(),
                 ": chown it");
  }
  return {};
}

Result<std::string> read_file(const std::string& file, std::string_view setting,
                              std::size_t most_bytes, bool is_secret) {
  // Not held up by a pipe that nobody writes into.
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat found {};
  if (!fd || ::fstat(fd.get(), &found) != 0)
    return wrong_file(setting, file, std::string("cannot be read: ") + std::strerror(errno));
  if (!S_ISREG(found.st_mode)) return wrong_file(setting, file, "is no regular file");
  if (is_secret) ARC_RETURN_IF_ERROR(check_owner(found, setting, file));
  std::string text(most_bytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return wrong_file(setting, file, std::string("cannot be read: ") + std::strerror(errno));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > most_bytes)
    return wrong_file(setting, file, "is longer than " + std::to_string(most_bytes) + " bytes");
  text.resize(size);
  return text;
}

void append(std::string& out, std::string_view part) {
  for (unsigned shift = 0; shift < 64; shift += 8)
    out.push_back(static_cast<char>(std::uint64_t{part.size()} >> shift));
  out += part;
}

}  // namespace

Result<std::string> read_secret_file(const std::string& file, std::string_view setting,
                                     std::size_t most_bytes) {
  return read_file(file, setting, most_bytes, true);
}

Result<std::string> read_small_file(const std::string& file, std::string_view setting,
                                    std::size_t most_bytes) {
  return read_file(file, setting, most_bytes, false);
}

Result<PeerToken> PeerToken::read(const std::string& file) {
  if (file.empty()) return PeerToken(std::string());
  Result<std::string> words = read_secret_file(file, "net.token_file", kMostBytes);
  if (!words) return std::move(words).error();
  while (!words->empty() && std::strchr(" \t\r\n", words->back()) != nullptr) words->pop_back();
  if (words->size() < kLeastBytes) {
    return wrong_file("net.token_file", file,
                      "holds fewer than " + std::to_string(kLeastBytes) +
                          " bytes: make one with openssl rand -hex 32");
  }
  return PeerToken(*std::move(words));
}

std::string PeerToken::prove(std::initializer_list<std::string_view> parts) const {
  std::string said;
  for (const std::string_view part : parts) append(said, part);
  std::string proof(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  if (::HMAC(EVP_sha256(), words_.data(), static_cast<int>(words_.size()),
             reinterpret_cast<const unsigned char*>(said.data()), said.size(),
             reinterpret_cast<unsigned char*>(proof.data()), &size) == nullptr) {
    size = 0;  // no proof, which no side takes
  }
  proof.resize(size);
  return proof;
}

bool equal_secrets(std::string_view a, std::string_view b) {
  return a.size() == kSecretBytes && b.size() == kSecretBytes &&
         ::CRYPTO_memcmp(a.data(), b.data(), kSecretBytes) == 0;
}

Result<std::string> random_secret() {
  std::string secret(kSecretBytes, '\0');
  if (::getrandom(secret.data(), secret.size(), 0) == static_cast<ssize_t>(secret.size()))
    return secret;
  return error(ErrorCode::Unavailable, Reason::None,
               "the machine has no random bytes: ", std::strerror(errno));
}

}  // namespace arcomm

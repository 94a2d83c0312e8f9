#include "daemon/control/peers/links/link_keys.h"

#include <cstring>

#include "daemon/control/peers/introduction/peer_token.h"

namespace arcomm {
namespace {

Result<net::Secret> new_secret() {
  const Result<std::string> random = random_secret();
  if (!random) return random.error();
  net::Secret secret;
  std::memcpy(secret.data(), random->data(), secret.size());
  return secret;
}

}  // namespace

Result<LinkKeys::Made> LinkKeys::make(const LinkName& link, std::uint32_t stream,
                                      std::string peer) {
  const Result<net::Secret> key = new_secret(), answer = new_secret();
  if (!key) return key.error();
  if (!answer) return answer.error();
  keys_[*key] =
      Entry{.what = {link, stream}, .guest = {.peer = std::move(peer), .answer = *answer}};
  return Made{*key, *answer};
}

void LinkKeys::drop(const LinkName& link) {
  std::erase_if(keys_, [&link](const auto& one) { return one.second.what.link == link; });
}

Result<net::Guest> LinkKeys::take(const net::HelloKey& shown) {
  const auto found = keys_.find(shown.key);
  if (found == keys_.end() || found->second.what.stream != shown.stream) {
    return error(ErrorCode::Unauthenticated, Reason::Permission,
                 "the key is not known here, or no longer");
  }
  last_ = found->second.what;
  net::Guest guest = std::move(found->second.guest);
  keys_.erase(found);
  return guest;
}

}  // namespace arcomm

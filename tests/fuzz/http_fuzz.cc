// What a stranger can send to the port of the metrics: however the bytes are cut, the exchange ends
// with one whole answer or with none, and asks for the metrics only where the answer carries them.
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/telemetry/metrics/http_exchange.h"

namespace {

using namespace arcomm;  // NOLINT(google-build-using-namespace)

constexpr std::string_view kMetrics = "arcomm_sessions 1\n";

void check(bool holds) {
  if (!holds) __builtin_trap();
}

struct End {
  std::string answer;
  int rendered = 0;
};

// In pieces as a stranger may send them: `cuts` repeats.
End exchange(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> cuts) {
  int sockets[2];
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
  const UniqueFd stranger(sockets[0]);
  HttpExchange served(UniqueFd(sockets[1]), {});
  End end;
  const auto render = [&end] {
    ++end.rendered;
    return std::string(kMetrics);
  };
  bool goes_on = true;
  for (std::size_t at = 0, turn = 0; at < bytes.size() && goes_on; ++turn) {
    const std::size_t wanted = cuts.empty() ? bytes.size() : cuts[turn % cuts.size()] + 1u;
    const auto piece = bytes.subspan(at, std::min(wanted, bytes.size() - at));
    const ssize_t sent = ::send(stranger.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
    check(sent > 0);
    at += static_cast<std::size_t>(sent);
    // As often as poll() would say that there is something.
    char peeked = 0;
    while (goes_on && ::recv(served.fd(), &peeked, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
      goes_on = served.advance(render);
  }
  char piece[1024];
  ssize_t got = 0;
  while ((got = ::recv(stranger.get(), piece, sizeof(piece), MSG_DONTWAIT)) > 0)
    end.answer.append(piece, static_cast<std::size_t>(got));
  check(goes_on == end.answer.empty());
  return end;
}

void check_answer(const End& end) {
  if (end.answer.empty()) return check(end.rendered == 0);
  check(end.answer.starts_with("HTTP/1.0 "));
  const std::size_t head = end.answer.find("\r\n\r\n");
  check(head != std::string::npos);
  const std::string body = end.answer.substr(head + 4);
  const bool is_ok = end.answer.starts_with("HTTP/1.0 200 ");
  check(end.rendered == (is_ok ? 1 : 0));
  if (is_ok) check(body.empty() || body == kMetrics);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4 || size > 8192) return 0;
  const std::span<const std::uint8_t> bytes(data + 4, size - 4);
  check_answer(exchange(bytes, {}));
  check_answer(exchange(bytes, {data, 4}));
  return 0;
}

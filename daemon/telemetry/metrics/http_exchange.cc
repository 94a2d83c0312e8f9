#include "daemon/telemetry/metrics/http_exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace arcomm {
namespace {

constexpr std::size_t kMaxRequestBytes = 4096;

std::string respond(std::string_view status, std::string_view type, std::string_view body,
                    bool is_head) {
  std::string answer = "HTTP/1.0 ";
  answer += status;
  answer += "\r\nContent-Type: ";
  answer += type;
  answer += "\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n";
  if (!is_head) answer += body;
  return answer;
}

bool is_complete(std::string_view request) {
  return request.find("\r\n\r\n") != std::string_view::npos ||
         request.find("\n\n") != std::string_view::npos;
}

}  // namespace

std::string answer_http(std::string_view request, const std::function<std::string()>& render) {
  constexpr std::string_view kPlain = "text/plain; charset=utf-8";
  const std::string_view line = request.substr(0, request.find_first_of("\r\n"));
  const std::size_t space = line.find(' ');
  const std::string_view method = line.substr(0, space);
  std::string_view target = space == std::string_view::npos ? "" : line.substr(space + 1);
  target = target.substr(0, target.find_first_of(" ?"));
  const bool is_head = method == "HEAD";
  if (method != "GET" && !is_head)
    return respond("405 Method Not Allowed", kPlain, "GET /metrics\n", is_head);
  if (target != "/metrics" && target != "/")
    return respond("404 Not Found", kPlain, "the metrics are at /metrics\n", is_head);
  return respond("200 OK", "text/plain; version=0.0.4; charset=utf-8", render(), is_head);
}

HttpExchange::HttpExchange(UniqueFd socket, TimePoint deadline)
    : socket_(std::move(socket)), deadline_(deadline) {}

short HttpExchange::wanted_events() const {
  return answer_.empty() ? POLLIN : POLLOUT;
}

bool HttpExchange::advance(const std::function<std::string()>& render) {
  return answer_.empty() ? receive(render) : transmit();
}

bool HttpExchange::receive(const std::function<std::string()>& render) {
  std::array<char, 1024> piece;
  const ssize_t got = ::recv(fd(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (got == 0) return false;
  request_.append(piece.data(), static_cast<std::size_t>(got));
  if (is_complete(request_)) {
    answer_ = answer_http(request_, render);
  } else if (request_.size() > kMaxRequestBytes) {
    answer_ = respond("431 Request Header Fields Too Large", "text/plain", "", false);
  } else {
    return true;
  }
  return transmit();
}

bool HttpExchange::transmit() {
  while (sent_ < answer_.size()) {
    const ssize_t wrote =
        ::send(fd(), answer_.data() + sent_, answer_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (wrote < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    sent_ += static_cast<std::size_t>(wrote);
  }
  ::shutdown(fd(), SHUT_WR);
  return false;
}

}  // namespace arcomm

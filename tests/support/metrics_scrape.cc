#include "tests/support/metrics_scrape.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace arcomm::support {
namespace {

std::string http_get(const std::string& path, milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    ADD_FAILURE() << "cannot connect to " << path << ": " << std::strerror(errno);
    return {};
  }
  const std::string_view request =
      "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return {};
  std::string answer;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
    pollfd waiting{fd.get(), POLLIN, 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) {
      ADD_FAILURE() << "the scrape of " << path << " did not end within " << limit.count() << " ms";
      return {};
    }
    char chunk[16384];
    const ssize_t got = ::recv(fd.get(), chunk, sizeof(chunk), 0);
    if (got <= 0) break;
    answer.append(chunk, static_cast<std::size_t>(got));
    // A server that keeps the connection says how long the body is.
    const std::size_t body = answer.find("\r\n\r\n");
    const std::size_t length = answer.find("Content-Length: ");
    if (body != std::string::npos && length < body &&
        answer.size() >= body + 4 + std::strtoul(answer.c_str() + length + 16, nullptr, 10)) {
      break;
    }
  }
  const std::size_t body = answer.find("\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.") && answer.find(" 200 ") < 16) << answer.substr(0, 200);
  return body == std::string::npos ? std::string() : answer.substr(body + 4);
}

}  // namespace

Metrics Metrics::scrape(const DaemonProcess& daemon) {
  return parse(http_get(daemon.metrics_socket(), milliseconds(4000)));
}

Metrics Metrics::parse(std::string_view text) {
  Metrics metrics;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t space = line.rfind(' ');
    char* end = nullptr;
    const double value =
        space == std::string::npos ? 0 : std::strtod(line.c_str() + space + 1, &end);
    if (end == nullptr || end == line.c_str() + space + 1) {
      ADD_FAILURE() << "not a sample of the text format: " << line;
      continue;
    }
    metrics.samples_[line.substr(0, space)] = value;
  }
  EXPECT_FALSE(metrics.samples_.empty()) << "the scrape was empty";
  return metrics;
}

double Metrics::value(std::string_view name, std::initializer_list<std::string_view> labels) const {
  double sum = 0;
  for (const auto& [sample, value] : samples_) {
    if (std::string_view(sample).substr(0, sample.find('{')) != name) continue;
    bool matches = true;
    for (const std::string_view label : labels)
      matches = matches && sample.find(label) != std::string::npos;
    if (matches) sum += value;
  }
  return sum;
}

bool Metrics::has(std::string_view name) const {
  for (const auto& [sample, value] : samples_) {
    if (std::string_view(sample).substr(0, sample.find('{')) == name) return true;
  }
  return false;
}

}  // namespace arcomm::support

#include "daemon/telemetry/metrics/metrics_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "daemon/telemetry/metrics/http_exchange.h"
#include "tests/unit/daemon/telemetry/temporary_folder.h"

namespace arcomm {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

UniqueFd connect_to(const std::string& address) {
  const timeval patience{.tv_sec = 5, .tv_usec = 0};
  if (address.starts_with("unix:")) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, address.c_str() + 5, sizeof(name.sun_path) - 1);
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0) fd.reset();
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return fd;
  }
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  name.sin_port =
      htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0) fd.reset();
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  return fd;
}

std::string receive_all(const UniqueFd& fd) {
  std::string text;
  char piece[4096];
  for (ssize_t got = 0; (got = ::recv(fd.get(), piece, sizeof(piece), 0)) > 0;)
    text.append(piece, static_cast<std::size_t>(got));
  return text;
}

std::string request(const std::string& address, const std::string& text) {
  const UniqueFd fd = connect_to(address);
  if (::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) return "(not sent)";
  return receive_all(fd);
}

TEST(MetricsServer, AnswersScrapesOnAPort) {
  auto server = MetricsServer::start("127.0.0.1:0", [] { return std::string("arcomm_up 1\n"); });
  ASSERT_TRUE(server) << server.error().to_string();
  const std::string answer =
      request((*server)->address(), "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.0 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\narcomm_up 1\n"));
}

TEST(MetricsServer, AnswersScrapesOnAUnixSocketAndRemovesItAtTheEnd) {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.sock");
  {
    auto server = MetricsServer::start("unix:" + path, [] { return std::string("arcomm_up 1\n"); });
    ASSERT_TRUE(server) << server.error().to_string();
    EXPECT_THAT(request("unix:" + path, "GET /metrics HTTP/1.0\n\n"), EndsWith("arcomm_up 1\n"));
  }
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST(MetricsServer, ReplacesAStaleSocketButNotALivingOne) {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.sock");
  {
    const UniqueFd stale(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, path.c_str(), sizeof(name.sun_path) - 1);
    ASSERT_EQ(::bind(stale.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  }
  auto first = MetricsServer::start("unix:" + path, [] { return std::string("x 1\n"); });
  ASSERT_TRUE(first) << first.error().to_string();
  const auto second = MetricsServer::start("unix:" + path, [] { return std::string("y 1\n"); });
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::AlreadyExists);
  EXPECT_THAT(request("unix:" + path, "GET / HTTP/1.0\n\n"), EndsWith("x 1\n"));
}

TEST(MetricsServer, SaysWhichAddressIsTaken) {
  auto first = MetricsServer::start("127.0.0.1:0", [] { return std::string(); });
  ASSERT_TRUE(first);
  const auto second = MetricsServer::start((*first)->address(), [] { return std::string(); });
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr((*first)->address()));
}

TEST(MetricsServer, ServesOthersWhileScrapersHang) {
  auto server = MetricsServer::start("127.0.0.1:0", [] { return std::string(1 << 20, 'x'); });
  ASSERT_TRUE(server);
  std::vector<UniqueFd> hanging;
  for (int i = 0; i < 12; ++i) {
    hanging.push_back(connect_to((*server)->address()));
    ASSERT_TRUE(hanging.back());
    // Some ask and never read, some never ask.
    if (i % 2 == 0) {
      EXPECT_GT(::send(hanging.back().get(), "GET / HTTP/1.0\n\n", 16, MSG_NOSIGNAL), 0);
    }
  }
  const auto begin = Clock::now();
  EXPECT_GT(request((*server)->address(), "GET /metrics HTTP/1.0\n\n").size(),
            std::size_t{1} << 20);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2));
  const auto end = Clock::now();
  server = Error{};  // ends at once, whoever hangs
  EXPECT_LT(Clock::now() - end, std::chrono::seconds(1));
}

TEST(MetricsServer, HangsUpOnAClientThatSaysNothing) {
  auto server = MetricsServer::start("127.0.0.1:0", [] { return std::string(); });
  ASSERT_TRUE(server);
  const UniqueFd silent = connect_to((*server)->address());
  const auto begin = Clock::now();
  EXPECT_EQ(receive_all(silent), "");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(4));
}

TEST(HttpAnswer, RefusesOtherMethodsAndPaths) {
  const auto render = [] { return std::string("text"); };
  EXPECT_THAT(answer_http("POST /metrics HTTP/1.0\n\n", render), StartsWith("HTTP/1.0 405"));
  EXPECT_THAT(answer_http("GET /etc/passwd HTTP/1.0\n\n", render), StartsWith("HTTP/1.0 404"));
  EXPECT_THAT(answer_http("\n\n", render), StartsWith("HTTP/1.0 405"));
  EXPECT_THAT(answer_http("GET\n\n", render), StartsWith("HTTP/1.0 404"));
  EXPECT_THAT(answer_http("GET /metrics?x=1 HTTP/1.1\r\n\r\n", render), EndsWith("\r\n\r\ntext"));
  EXPECT_THAT(answer_http("HEAD /metrics HTTP/1.1\r\n\r\n", render), EndsWith("\r\n\r\n"));
}

}  // namespace
}  // namespace arcomm

#include "tests/support/processes/client_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <sstream>

namespace arcomm::support {
namespace {

// One reply is one line: "code reason rank took_ms value message...".
Reply parse_reply(const std::string& line) {
  Reply reply;
  std::istringstream in(line);
  int code = 0, reason = 0;
  long long took = 0;
  in >> code >> reason >> reply.rank >> took >> reply.value;
  if (!in) {
    ADD_FAILURE() << "the test client wrote: " << line;
    return reply;
  }
  reply.heard = true;
  reply.code = static_cast<arcResult_t>(code);
  reply.reason = static_cast<arcReason_t>(reason);
  reply.took = milliseconds(took);
  if (reply.value == "-") reply.value.clear();
  std::getline(in >> std::ws, reply.message);
  return reply;
}

}  // namespace

std::string Reply::to_string() const {
  if (!heard) return "no reply";
  return "code " + std::to_string(code) + " reason " + std::to_string(reason) + " rank " +
         std::to_string(rank) + " after " + std::to_string(took.count()) + " ms: " + value + " " +
         message;
}

std::unique_ptr<ClientProcess> ClientProcess::start(const DaemonProcess& daemon) {
  Options options;
  options.environment = daemon.environment();
  return start(std::move(options));
}

std::unique_ptr<ClientProcess> ClientProcess::start(Options options) {
  ChildOptions child;
  child.command = std::move(options.prefix);
  child.command.push_back(test_client_binary());
  child.environment = std::move(options.environment);
  child.log_path = options.log_path;
  child.pipe_input = true;
  child.pipe_output = true;
  child.uid = options.uid;
  child.gid = options.gid;
  child.user_namespace_fd = options.user_namespace_fd;
  child.groups = std::move(options.groups);
  child.limits = std::move(options.limits);
  std::optional<ChildProcess> process = ChildProcess::start(std::move(child));
  if (!process) return nullptr;
  return std::unique_ptr<ClientProcess>(new ClientProcess(std::move(*process)));
}

void ClientProcess::tell(std::string_view line) {
  std::string text(line);
  text += '\n';
  // The client may be dead: that is a reply not heard, and must not end the test program by
  // SIGPIPE.
  const auto previous = ::signal(SIGPIPE, SIG_IGN);
  [[maybe_unused]] const ssize_t written = ::write(child_.input(), text.data(), text.size());
  ::signal(SIGPIPE, previous);
}

Reply ClientProcess::hear(milliseconds deadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (;;) {
    const std::size_t newline = unread_.find('\n');
    if (newline != std::string::npos) {
      const std::string line = unread_.substr(0, newline);
      unread_.erase(0, newline + 1);
      return parse_reply(line);
    }
    const auto left =
        std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
    pollfd waiting{child_.output(), POLLIN, 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) return {};
    char chunk[4096];
    const ssize_t got = ::read(child_.output(), chunk, sizeof(chunk));
    if (got <= 0) return {};
    unread_.append(chunk, static_cast<std::size_t>(got));
  }
}

Reply ClientProcess::ask(std::string_view line, milliseconds deadline) {
  tell(line);
  return hear(deadline);
}

std::string ClientProcess::expect_ok(std::string_view line, milliseconds deadline) {
  const Reply reply = ask(line, deadline);
  EXPECT_TRUE(reply.ok()) << line << ": " << reply.to_string();
  return reply.value;
}

std::vector<std::unique_ptr<ClientProcess>> start_ranks(const DaemonProcess& daemon, int ranks,
                                                        std::string_view init) {
  std::vector<std::unique_ptr<ClientProcess>> clients;
  for (int rank = 0; rank < ranks; ++rank) {
    clients.push_back(ClientProcess::start(daemon));
    if (!clients.back()) return {};
  }
  for (const Reply& reply : ask_all(clients, init))
    EXPECT_TRUE(reply.ok()) << init << ": " << reply.to_string();
  form_communicator(clients, "c0");
  return clients;
}

void form_communicator(const std::vector<std::unique_ptr<ClientProcess>>& clients,
                       std::string_view name) {
  const std::string id = clients[0]->expect_ok("id");
  for (std::size_t rank = 0; rank < clients.size(); ++rank) {
    clients[rank]->tell("comm " + std::string(name) + " " + std::to_string(clients.size()) + " " +
                        id + " " + std::to_string(rank));
  }
  for (const auto& client : clients) {
    const Reply reply = client->hear();
    EXPECT_TRUE(reply.ok()) << "comm " << name << ": " << reply.to_string();
  }
}

std::vector<Reply> ask_all(const std::vector<std::unique_ptr<ClientProcess>>& clients,
                           std::string_view line, milliseconds deadline) {
  for (const auto& client : clients) client->tell(line);
  const auto end = std::chrono::steady_clock::now() + deadline;
  std::vector<Reply> replies;
  for (const auto& client : clients) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
    replies.push_back(client->hear(std::max(left, milliseconds(1))));
  }
  return replies;
}

void expect_all_ok(const std::vector<std::unique_ptr<ClientProcess>>& clients,
                   std::string_view line, milliseconds deadline) {
  std::size_t rank = 0;
  for (const Reply& reply : ask_all(clients, line, deadline)) {
    EXPECT_TRUE(reply.ok()) << "rank " << rank << ", " << line << ": " << reply.to_string();
    ++rank;
  }
}

void expect_clean_all_reduce(const DaemonProcess& daemon) {
  const auto started = std::chrono::steady_clock::now();
  const auto clients = start_ranks(daemon, 2);
  if (clients.empty()) return;
  expect_all_ok(clients, "allreduce c0 4097 float32 sum");
  // The worker's: calls of so much do not meet without it.
  expect_all_ok(clients, "allreduce c0 10007 float32 sum");
  expect_all_ok(clients, "finalize");
  const auto took = std::chrono::steady_clock::now() - started;
  EXPECT_LT(took, std::chrono::seconds(5)) << "the node was slow to serve a new communicator";
}

}  // namespace arcomm::support

#include "tests/support/processes/terminal_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "tests/support/scratch_folder.h"

namespace arcomm::support {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTurnMs = 10;

}  // namespace

std::unique_ptr<TerminalProcess> TerminalProcess::start(std::vector<std::string> command,
                                                        std::vector<std::string> environment) {
  int keyboard = -1, terminal = -1;
  const winsize size{24, 120, 0, 0};
  if (::openpty(&keyboard, &terminal, nullptr, nullptr, &size) != 0) {
    ADD_FAILURE() << "no terminal: " << std::strerror(errno);
    return nullptr;
  }
  UniqueFd ours(keyboard), theirs(terminal);
  for (const int fd : {keyboard, terminal}) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(keyboard, F_SETFL, O_NONBLOCK);
  termios before{};
  ::tcgetattr(terminal, &before);
  ChildOptions options;
  options.command = std::move(command);
  options.environment = std::move(environment);
  options.environment.emplace_back("TERM=xterm-256color");
  options.environment.emplace_back("NO_COLOR=");
  options.terminal_fd = terminal;
  std::optional<ChildProcess> child = ChildProcess::start(std::move(options));
  if (!child) return nullptr;
  return std::unique_ptr<TerminalProcess>(
      new TerminalProcess(std::move(ours), std::move(theirs), before, std::move(*child)));
}

void TerminalProcess::type(std::string_view keys) {
  EXPECT_EQ(::write(keyboard_.get(), keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
}

const std::string& TerminalProcess::screen() {
  char chunk[4096];
  for (ssize_t got = 0; (got = ::read(keyboard_.get(), chunk, sizeof(chunk))) > 0;)
    drawn_.append(chunk, static_cast<std::size_t>(got));
  return drawn_;
}

bool TerminalProcess::wait_for(std::string_view text, std::size_t times, milliseconds deadline) {
  const auto end = Clock::now() + deadline;
  while (count_of(screen(), text) < times) {
    if (Clock::now() >= end || !child_.running()) return count_of(screen(), text) >= times;
    pollfd drawn{keyboard_.get(), POLLIN, 0};
    ::poll(&drawn, 1, kTurnMs);
  }
  return true;
}

std::optional<Exit> TerminalProcess::wait(milliseconds deadline) {
  const auto end = Clock::now() + deadline;
  for (;;) {
    const std::optional<Exit> exit = child_.wait(milliseconds(kTurnMs));
    screen();
    if (exit || Clock::now() >= end) return exit;
  }
}

std::string TerminalProcess::left_behind() {
  termios after{};
  if (::tcgetattr(terminal_.get(), &after) != 0) return "the terminal does not answer";
  if (after.c_lflag != before_.c_lflag || after.c_iflag != before_.c_iflag ||
      after.c_oflag != before_.c_oflag) {
    return "its modes";
  }
  const std::string& drawn = screen();
  const auto still = [&drawn](const char* on, const char* off) {
    const std::size_t last = drawn.rfind(on);
    return last != std::string::npos && drawn.find(off, last) == std::string::npos;
  };
  if (still("\x1b[?25l", "\x1b[?25h")) return "a hidden cursor";
  if (still("\x1b[?1049h", "\x1b[?1049l")) return "the other screen";
  for (const char* colour : {"\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"}) {
    if (still(colour, "\x1b[0m")) return "a colour";
  }
  return {};
}

}  // namespace arcomm::support

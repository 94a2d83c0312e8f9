#include "client/arctl/command_line/invocation.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

namespace arcomm::arctl {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void on_interrupt(int) {
  interrupted = 1;
}

void nap(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  const timespec span{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  ::nanosleep(&span, nullptr);  // a signal ends it early, which is what is wanted
}

}  // namespace

bool wants_colour(int descriptor) {
  const char* terminal = std::getenv("TERM");
  const char* refused = std::getenv("NO_COLOR");
  return ::isatty(descriptor) == 1 && (refused == nullptr || *refused == '\0') &&
         terminal != nullptr && std::string_view(terminal) != "dumb";
}

ExitCode print(const std::string& text, ExitCode code) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return code;
  std::fprintf(stderr, "arctl: cannot write to standard output: %s\n", std::strerror(errno));
  return ExitCode::Failure;
}

ExitCode show(const Invocation& invocation, const std::function<Result<Frame>(Admin&)>& render) {
  Result<Admin> admin = invocation.connect();
  if (!admin) return report(admin.error());
  if (!invocation.watch_s) {
    Result<Frame> frame = render(*admin);
    if (!frame) return report(frame.error());
    return print(frame->text, frame->code);
  }
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // no SA_RESTART: the nap must end
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  const bool redraw = !invocation.json && ::isatty(STDOUT_FILENO) == 1;
  ExitCode code = ExitCode::Ok;
  for (bool first = true; interrupted == 0; first = false) {
    Result<Frame> frame = render(*admin);
    if (!frame) return report(frame.error());
    const char* before = redraw ? "\x1b[H\x1b[2J" : first || invocation.json ? "" : "\n";
    code = print(before + frame->text, ExitCode::Ok);
    if (code != ExitCode::Ok) break;
    nap(*invocation.watch_s);
  }
  return code;
}

}  // namespace arcomm::arctl

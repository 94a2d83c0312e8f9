// What the command line said: the options that every verb shares, and the action of the verb that
// was chosen.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "client/arctl/admin.h"
#include "client/arctl/command_line/exit_code.h"

namespace arcomm::arctl {

struct Invocation {
  std::string runtime_dir;          // "": the environment's, then /run/arcommd
  std::optional<double> timeout_s;  // absent: the verb's own
  bool json = false;
  bool colour = false;  // stdout is a terminal that wants it
  std::optional<double> watch_s;
  std::function<ExitCode()> action;

  std::chrono::milliseconds timeout_or(double fallback_s) const {
    return std::chrono::milliseconds(
        static_cast<std::int64_t>(timeout_s.value_or(fallback_s) * 1000));
  }
  Result<Admin> connect() const { return Admin::open(runtime_dir, timeout_or(10)); }
};

// One screen of output.
struct Frame {
  std::string text;
  ExitCode code = ExitCode::Ok;
};

// Prints the frame on stdout, once, or again and again with --watch until Ctrl-C. On a terminal
// each frame replaces the one before.
ExitCode show(const Invocation& invocation, const std::function<Result<Frame>(Admin&)>& render);

// Prints on stdout and reports a closed pipe or full disk as a failure.
ExitCode print(const std::string& text, ExitCode code = ExitCode::Ok);

bool wants_colour(int descriptor);

}  // namespace arcomm::arctl

// A program on a terminal of its own, as an operator starts it: keys go in, and what it draws comes
// back. Thread: one at a time. Every wait has a deadline, and reads meanwhile: a program that draws
// much is not held up.
#pragma once

#include <termios.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/unique_fd.h"
#include "tests/support/processes/child_process.h"

namespace arcomm::support {

class TerminalProcess {
 public:
  // 24 lines of 120 columns. Null, and a failed assertion, when it could not be started.
  static std::unique_ptr<TerminalProcess> start(std::vector<std::string> command,
                                                std::vector<std::string> environment);

  pid_t pid() const { return child_.pid(); }
  void type(std::string_view keys);  // "\x03" is Ctrl-C
  // Everything drawn so far, control sequences included.
  const std::string& screen();
  // Until `text` was drawn `times` times.
  bool wait_for(std::string_view text, std::size_t times, milliseconds deadline);
  std::optional<Exit> wait(milliseconds deadline);
  // "" when the terminal is as it was before the start; else what is different.
  std::string left_behind();

 private:
  TerminalProcess(UniqueFd keyboard, UniqueFd terminal, termios before, ChildProcess child)
      : keyboard_(std::move(keyboard)),
        terminal_(std::move(terminal)),
        before_(before),
        child_(std::move(child)) {}

  UniqueFd keyboard_;  // our end
  UniqueFd terminal_;  // the program's end, kept open so that its settings can be read afterwards
  termios before_;
  ChildProcess child_;
  std::string drawn_;
};

}  // namespace arcomm::support

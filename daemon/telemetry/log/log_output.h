// Where log lines end: standard error or a file. Writing gives up rather than wait beyond what the
// caller allows. Thread: one at a time (the log's writer thread).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

class LogOutput {
 public:
  // "": standard error. A file is created with mode 0640 and appended to.
  static Result<std::unique_ptr<LogOutput>> open(const std::string& file);

  // True when the whole line was written. An output that is not ready is asked again every 20 ms
  // for as long as `keep_waiting` says so.
  bool write(std::string_view line, const std::function<bool()>& keep_waiting);
  // Standard error leads to the journal (systemd's JOURNAL_STREAM says so).
  bool is_journal() const { return is_journal_; }

 private:
  explicit LogOutput(int fd, UniqueFd owned);

  int fd_;  // borrowed standard error, or owned_
  UniqueFd owned_;
  bool is_socket_ = false;
  bool is_journal_ = false;
  bool is_mid_line_ = false;  // a line was cut short by an error: begin the next one on a new line
};

}  // namespace arcomm

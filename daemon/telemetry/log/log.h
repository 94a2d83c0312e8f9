// The daemon's log: text or JSON lines through spdlog, to standard error, a file or the journal.
// Thread: every function may be called from any thread. A line is formatted by the caller and
// handed to a bounded queue; one writer thread writes. When the output is slow, full or gone, lines
// are dropped and counted: a caller is never held up by an output. Before start() and after stop()
// lines go nowhere but are counted as dropped, except warnings and errors, which are tried on
// standard error without waiting. The log is the process's one mutable global, as standard error
// is.
#pragma once

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ostr.h>
#include <sys/types.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "config/settings.h"
#include "proto/status.h"

namespace arcomm::log {

struct Options {
  LogLevel level = LogLevel::Info;
  LogFormat format = LogFormat::Text;
  std::string file{};  // "": standard error
  std::size_t queue_lines = 8192;
};

Options options_from(const Settings& settings);

// A second start() replaces the first's output.
Status start(const Options& options);
// Writes what is queued, for at most 500 ms, and ends the writer thread.
void stop();
// Waits, at most `timeout_ms`, until everything logged before the call is written or dropped.
bool flush(std::uint64_t timeout_ms);
// Opens the log file anew (after rotation). The old one stays in use when that fails.
Status reopen();

void set_level(LogLevel level);
void set_format(LogFormat format);
bool enabled(LogLevel level);
std::uint64_t dropped_lines();
std::uint64_t left_out_lines();  // that were beyond a user's share

// What users have of the lines of this second, by what the lines are about (line_shares.h).
struct LineUse {
  std::string_view name;  // "log_lines_about_calls"
  std::uint64_t used = 0, of_all = 0, of_uid = 0;
  std::size_t users = 0;
  std::uint64_t most = 0;
  uid_t most_uid = 0;
};
std::vector<LineUse> lines_used();

// The message as it is; control characters are escaped on the way out, so that a client's text
// cannot forge a line.
void write(LogLevel level, std::string_view message);

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(LogLevel::Debug))
    write(LogLevel::Debug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(LogLevel::Info))
    write(LogLevel::Info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(LogLevel::Warn))
    write(LogLevel::Warn, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(LogLevel::Error))
    write(LogLevel::Error, fmt::format(format, std::forward<Args>(args)...));
}

// What a line tells that a user's doings have brought about, as often as the user likes. Each kind
// is shared among the uids by itself (line_shares.h): a flood of one kind, or of one uid, hides no
// line of another. What was left out is told about a second later. Whoever asks for debug lines has
// asked for all of it.
enum class About : std::uint8_t { Calls, Sessions, Operations };
// Whether a line about what `uid` did may be written now. It counts as written then.
bool admits(About about, uid_t uid);
template <typename... Args>
void info_of(About about, uid_t uid, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(LogLevel::Info) && admits(about, uid))
    write(LogLevel::Info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn_of(About about, uid_t uid, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(LogLevel::Warn) && admits(about, uid))
    write(LogLevel::Warn, fmt::format(format, std::forward<Args>(args)...));
}

// Who did what to whom, whatever the level: log::audit("attach refused", {{"uid", "1000"}, {"pid",
// "4711"}}). A part of the queue is kept for these, so that a flood of other lines does not push
// them out.
struct Field {
  std::string_view name;
  std::string value;
};
void audit(std::string_view event, std::initializer_list<Field> fields);
// Of what anybody may do any number of times: within the share of `uid`.
void audit_of(uid_t uid, std::string_view event, std::initializer_list<Field> fields);

}  // namespace arcomm::log

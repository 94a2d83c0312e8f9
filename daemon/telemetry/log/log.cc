#include "daemon/telemetry/log/log.h"

#include <poll.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/sink.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "daemon/telemetry/log/escape.h"
#include "daemon/telemetry/log/line_shares.h"
#include "daemon/telemetry/log/log_line.h"
#include "daemon/telemetry/log/log_output.h"
#include "daemon/telemetry/log/log_queue.h"
#include "daemon/telemetry/log/log_writer.h"
#include "daemon/telemetry/uid_range.h"

namespace arcomm::log {
namespace {

constexpr std::chrono::milliseconds kStopPatience{500};
constexpr std::size_t kAuditFieldBudget = 512;
constexpr std::size_t kAuditBudget = kMaxLogLineBytes - 256;

// A second's lines. Of sessions as many as a job of 64 ranks needs that comes and goes. Audit
// lines: all of them fit into the part of the queue that is theirs.
constexpr LineShares::Limits kAuditShares{.of_uid = 16, .of_all = 512};
constexpr LineShares::Limits kCallShares{.of_uid = 16, .of_all = 256};
constexpr LineShares::Limits kSessionShares{.of_uid = 128, .of_all = 512};
constexpr LineShares::Limits kOperationShares{.of_uid = 64, .of_all = 512};

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

// spdlog's end of the queue.
class QueueSink : public spdlog::sinks::sink {
 public:
  QueueSink(LogQueue& queue, std::atomic<std::uint64_t>& dropped, const LineStyle& style)
      : queue_(queue), dropped_(dropped), formatter_(style) {}

  void log(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_.format(message, line);
    const bool is_audit =
        std::string_view(message.logger_name.data(), message.logger_name.size()) == kAuditLogger;
    if (!queue_.push(std::string(line.data(), line.size()), is_audit))
      dropped_.fetch_add(1, std::memory_order_relaxed);
  }
  void flush() override {}
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  LogQueue& queue_;
  std::atomic<std::uint64_t>& dropped_;
  LineFormatter formatter_;  // has no state of its own: safe from any thread
};

struct Shares {
  LineShares audits{kAuditShares}, calls{kCallShares}, sessions{kSessionShares},
      operations{kOperationShares};

  LineShares& of(About about) {
    switch (about) {
      case About::Calls:
        return calls;
      case About::Sessions:
        return sessions;
      case About::Operations:
        return operations;
    }
    return calls;
  }
  void start_anew() {
    for (LineShares* shares : {&audits, &calls, &sessions, &operations}) shares->start_anew();
  }
  std::uint64_t left_out() const {
    return audits.left_out() + calls.left_out() + sessions.left_out() + operations.left_out();
  }
};

// Lives until the process ends, since a thread may log while others are being torn down.
struct State {
  LogQueue queue;
  std::atomic<std::uint64_t> dropped{0};
  std::atomic<LogLevel> level{LogLevel::Info};
  std::atomic<bool> is_running{false};
  LineStyle style;
  Shares shares;
  std::shared_ptr<spdlog::sinks::sink> sink = std::make_shared<QueueSink>(queue, dropped, style);
  spdlog::logger lines{"arcommd", sink};
  spdlog::logger audits{std::string(kAuditLogger), sink};
  std::mutex mutex;  // start, stop, reopen
  std::unique_ptr<LogWriter> writer;
  std::string file;

  State() {
    lines.set_level(spdlog::level::trace);  // enabled() has judged already
    audits.set_level(spdlog::level::trace);
  }
};

State& state() {
  static State* const kState = new State;
  return *kState;
}

std::string format_line(State& s, LogLevel level, std::string_view message) {
  spdlog::memory_buf_t out;
  LineFormatter(s.style).format(
      spdlog::details::log_msg("arcommd", spdlog_level(level),
                               spdlog::string_view_t(message.data(), message.size())),
      out);
  return std::string(out.data(), out.size());
}

// While nothing writes the queue: once, if standard error takes it now.
void try_standard_error(State& s, LogLevel level, std::string_view message) {
  s.dropped.fetch_add(1, std::memory_order_relaxed);
  if (level < LogLevel::Warn) return;
  const std::string line = format_line(s, level, message);
  pollfd ready{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return;
  if (::write(STDERR_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size()))
    s.dropped.fetch_sub(1, std::memory_order_relaxed);
}

std::string text_of(uid_t uid) {
  if (uid == LineShares::kOthers) return "others";
  const std::string first = std::to_string(uid);
  return uid < kUidRange ? first : first + " to " + std::to_string(uid + kUidRange - 1);
}

std::string_view text_of(About about) {
  switch (about) {
    case About::Calls:
      return "failed calls";
    case About::Sessions:
      return "lines about sessions";
    case About::Operations:
      return "lines about operations";
  }
  return "lines";
}

// Into the queue, which does not wait.
void tell_left_out(State& s, About about) {
  for (const LineShares::LeftOut& one : s.shares.of(about).take_left_out(now_ns()))
    info("{} more {} of uid {} were not logged", one.lines, text_of(about), text_of(one.uid));
}

void tell_left_out_audits(State& s) {
  for (const LineShares::LeftOut& one : s.shares.audits.take_left_out(now_ns()))
    audit("lines left out", {{"uid", text_of(one.uid)}, {"lines", std::to_string(one.lines)}});
}

}  // namespace

Options options_from(const Settings& settings) {
  return {.level = settings.log.level, .format = settings.log.format, .file = settings.log.file};
}

Status start(const Options& options) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  auto output = LogOutput::open(options.file);
  if (!output) return std::move(output).error();
  s.shares.start_anew();
  s.level.store(options.level, std::memory_order_relaxed);
  s.style.format.store(options.format, std::memory_order_relaxed);
  s.style.journal.store((*output)->is_journal(), std::memory_order_relaxed);
  s.queue.set_capacity(options.queue_lines);
  s.file = options.file;
  if (s.writer) {
    s.writer->replace(std::move(*output));
  } else {
    s.writer = std::make_unique<LogWriter>(
        s.queue, s.dropped, std::move(*output),
        [&s](std::uint64_t dropped) {
          return format_line(
              s, LogLevel::Warn,
              fmt::format("{} log lines were dropped since the output could not take them",
                          dropped));
        },
        [&s] {
          for (const About about : {About::Calls, About::Sessions, About::Operations})
            tell_left_out(s, about);
          tell_left_out_audits(s);
        });
  }
  s.is_running.store(true, std::memory_order_release);
  return {};
}

void stop() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.is_running.store(false, std::memory_order_release);
  if (!s.writer) return;
  s.writer->stop(kStopPatience);
  s.writer.reset();
  s.dropped.fetch_add(s.queue.discard(), std::memory_order_relaxed);
}

bool flush(std::uint64_t timeout_ms) {
  return state().queue.wait_until_finished(std::chrono::steady_clock::now() +
                                           std::chrono::milliseconds(timeout_ms));
}

Status reopen() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.file.empty() || !s.writer) return {};
  auto output = LogOutput::open(s.file);
  if (!output) return std::move(output).error();
  s.writer->replace(std::move(*output));
  return {};
}

void set_level(LogLevel level) {
  state().level.store(level, std::memory_order_relaxed);
}

void set_format(LogFormat format) {
  state().style.format.store(format, std::memory_order_relaxed);
}

bool enabled(LogLevel level) {
  return level >= state().level.load(std::memory_order_relaxed);
}

std::uint64_t dropped_lines() {
  return state().dropped.load(std::memory_order_relaxed);
}

std::uint64_t left_out_lines() {
  return state().shares.left_out();
}

bool admits(About about, uid_t uid) {
  if (enabled(LogLevel::Debug)) return true;
  tell_left_out(state(), about);
  return state().shares.of(about).spend(uid, now_ns());
}

void write(LogLevel level, std::string_view message) {
  State& s = state();
  if (!enabled(level)) return;
  if (!s.is_running.load(std::memory_order_acquire)) return try_standard_error(s, level, message);
  s.lines.log(spdlog_level(level), spdlog::string_view_t(message.data(), message.size()));
}

void audit(std::string_view event, std::initializer_list<Field> fields) {
  State& s = state();
  const bool is_json = s.style.format.load(std::memory_order_relaxed) == LogFormat::Json;
  std::string line = is_json ? "\"event\":\"" : "";
  if (is_json) {
    append_json_escaped(line, event, kAuditFieldBudget);
    line += '"';
  } else {
    append_text_escaped(line, event, kAuditFieldBudget);
  }
  for (const Field& field : fields) {
    std::string piece = is_json ? ",\"" : " ";
    piece += field.name;
    piece += is_json ? "\":\"" : "=";
    // Quoted in text too when it could be mistaken for the next field.
    const bool is_quoted = !is_json && field.value.find_first_of(" =\"\\") != std::string::npos;
    if (is_quoted) piece += '"';
    if (is_json || is_quoted) {
      append_json_escaped(piece, field.value, kAuditFieldBudget);
    } else {
      append_text_escaped(piece, field.value, kAuditFieldBudget);
    }
    if (is_json || is_quoted) piece += '"';
    if (line.size() + piece.size() > kAuditBudget) break;
    line += piece;
  }
  if (!s.is_running.load(std::memory_order_acquire)) {
    s.dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  s.audits.log(spdlog::level::info, spdlog::string_view_t(line.data(), line.size()));
}

std::vector<LineUse> lines_used() {
  State& s = state();
  const std::pair<std::string_view, LineShares*> all[] = {
      {"log_lines_about_calls", &s.shares.calls},
      {"log_lines_about_sessions", &s.shares.sessions},
      {"log_lines_about_operations", &s.shares.operations},
      {"audit_lines", &s.shares.audits}};
  std::vector<LineUse> used;
  for (const auto& [name, shares] : all) {
    const LineShares::Use use = shares->find_use(now_ns());
    used.push_back({.name = name,
                    .used = use.lines,
                    .of_all = use.limits.of_all,
                    .of_uid = use.limits.of_uid,
                    .users = use.users,
                    .most = use.most.lines,
                    .most_uid = use.most.lines == 0 ? 0 : use.most.uid});
  }
  return used;
}

void audit_of(uid_t uid, std::string_view event, std::initializer_list<Field> fields) {
  tell_left_out_audits(state());
  if (state().shares.audits.spend(uid, now_ns())) audit(event, fields);
}

}  // namespace arcomm::log

#include "daemon/telemetry/log/log_line.h"

#include <array>
#include <chrono>
#include <ctime>

#include "daemon/telemetry/log/escape.h"

namespace arcomm {
namespace {

constexpr std::size_t kRoomForTheRest = 128;  // time, level, quotes, newline

std::string_view level_word(const spdlog::details::log_msg& message) {
  if (std::string_view(message.logger_name.data(), message.logger_name.size()) == kAuditLogger)
    return "audit";
  switch (message.level) {
    case spdlog::level::trace:
      return "trace";
    case spdlog::level::debug:
      return "debug";
    case spdlog::level::info:
      return "info";
    case spdlog::level::warn:
      return "warn";
    case spdlog::level::err:
    case spdlog::level::critical:
    case spdlog::level::off:
    case spdlog::level::n_levels:
      break;
  }
  return "error";
}

// syslog(3) priorities, which the journal reads off "<N>".
char journal_priority(std::string_view level) {
  if (level == "error") return '3';
  if (level == "warn") return '4';
  if (level == "audit") return '5';
  if (level == "info") return '6';
  return '7';
}

std::string utc(std::chrono::system_clock::time_point time) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(since - seconds).count();
  const std::time_t whole = seconds.count();
  std::tm parts{};
  ::gmtime_r(&whole, &parts);
  std::array<char, 32> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:06}Z", date.data(), micros);
}

}  // namespace

void LineFormatter::format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) {
  const std::string_view payload(message.payload.data(), message.payload.size());
  const std::string_view level = level_word(message);
  const bool is_audit = level == "audit";
  const bool is_journal = style_.journal.load(std::memory_order_relaxed);
  const std::size_t budget = kMaxLogLineBytes - kRoomForTheRest;
  std::string line;
  if (is_journal) {
    line = "<";
    line += journal_priority(level);
    line += '>';
  }
  if (style_.format.load(std::memory_order_relaxed) == LogFormat::Json) {
    line += "{\"time\":\"" + utc(message.time) + "\",\"level\":\"" + std::string(level) + "\",";
    if (is_audit) {
      line += payload;
    } else {
      line += "\"message\":\"";
      append_json_escaped(line, payload, budget);
      line += '"';
    }
    line += '}';
  } else {
    if (!is_journal) line += utc(message.time) + " ";
    line += level;
    line.append(level.size() < 5 ? 2 : 1, ' ');
    if (is_audit) {
      line += payload;
    } else {
      append_text_escaped(line, payload, budget);
    }
  }
  line += '\n';
  out.append(line.data(), line.data() + line.size());
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::Trace:
      return spdlog::level::trace;
    case LogLevel::Debug:
      return spdlog::level::debug;
    case LogLevel::Info:
      return spdlog::level::info;
    case LogLevel::Warn:
      return spdlog::level::warn;
    case LogLevel::Error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace arcomm

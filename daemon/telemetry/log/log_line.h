// How a log line looks: for people, as JSON, or for the journal, which stamps the time itself.
// Thread: any; nothing here is mutable.
#pragma once

#include <spdlog/formatter.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "config/settings.h"

namespace arcomm {

// So that a line goes into a pipe in one piece (PIPE_BUF), its newline included.
inline constexpr std::size_t kMaxLogLineBytes = 4096;
// Lines of the logger with this name carry fields that are rendered already.
inline constexpr std::string_view kAuditLogger = "audit";

struct LineStyle {
  std::atomic<LogFormat> format{LogFormat::Text};
  std::atomic<bool> journal{false};
};

class LineFormatter : public spdlog::formatter {
 public:
  explicit LineFormatter(const LineStyle& style) : style_(style) {}
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override;
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<LineFormatter>(style_);
  }

 private:
  const LineStyle& style_;  // outlives this
};

spdlog::level::level_enum spdlog_level(LogLevel level);

}  // namespace arcomm

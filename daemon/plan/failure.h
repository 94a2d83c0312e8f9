// How an operation ended, without the allocator: what Error is elsewhere, in a fixed size. The text
// is cut where the ring's completion would cut it anyway.
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "proto/status.h"
#include "proto/text.h"
#include "proto/types.h"

namespace arcomm {

struct Failure {
  ErrorCode code = ErrorCode::Ok;
  Reason reason = Reason::None;
  Rank culprit = kNoRank;
  std::array<char, 128> text{};  // zero-terminated

  bool ok() const { return code == ErrorCode::Ok; }
  std::string_view message() const { return text.data(); }
  void set_text(std::string_view message) {
    const std::string_view kept = cut_text(message, text.size() - 1);
    text[kept.copy(text.data(), kept.size())] = '\0';
  }
  Error to_error() const { return Error{code, reason, std::string(message()), culprit}; }

  static Failure from(const Error& error) {
    Failure failure{error.code, error.reason, error.rank, {}};
    failure.set_text(error.message);
    return failure;
  }
};

// Builds a Failure from a printf format: failures happen, and may be provoked, so they too cost no
// allocation.
[[gnu::format(printf, 4, 5)]] inline Failure make_failure(ErrorCode code, Reason reason,
                                                          Rank culprit, const char* format, ...);

inline Failure make_failure(ErrorCode code, Reason reason, Rank culprit, const char* format, ...) {
  Failure failure{code, reason, culprit, {}};
  __builtin_va_list arguments;
  __builtin_va_start(arguments, format);
  const int length = std::vsnprintf(failure.text.data(), failure.text.size(), format, arguments);
  __builtin_va_end(arguments);
  // What did not fit was cut anywhere: not in the middle of a character.
  if (std::cmp_greater_equal(length, failure.text.size()))
    failure.text[whole_length(failure.message())] = '\0';
  return failure;
}

}  // namespace arcomm

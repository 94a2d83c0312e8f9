#include "proto/status.h"

namespace arcomm {

std::string_view name_of(ErrorCode code) {
  switch (code) {
#define X(name, number, text) \
  case ErrorCode::name:       \
    return #name;
    ARC_ERROR_CODES(X)
#undef X
  }
  return "UnknownCode";
}

std::string_view text_of(ErrorCode code) {
  switch (code) {
#define X(name, number, text) \
  case ErrorCode::name:       \
    return text;
    ARC_ERROR_CODES(X)
#undef X
  }
  return "a code this version does not know";
}

std::string_view name_of(Reason reason) {
  switch (reason) {
#define X(name, number, text) \
  case Reason::name:          \
    return #name;
    ARC_REASONS(X)
#undef X
  }
  return "UnknownReason";
}

std::string_view text_of(Reason reason) {
  switch (reason) {
#define X(name, number, text) \
  case Reason::name:          \
    return text;
    ARC_REASONS(X)
#undef X
  }
  return "a reason this version does not know";
}

ErrorCode error_code_from(unsigned number) {
  return number <= static_cast<unsigned>(ErrorCode::Unauthenticated)
             ? static_cast<ErrorCode>(number)
             : ErrorCode::Unknown;
}

Reason reason_from(unsigned number) {
  return number <= static_cast<unsigned>(Reason::Reordered) ? static_cast<Reason>(number)
                                                            : Reason::None;
}

std::string Error::to_string() const {
  std::string text(name_of(code));
  if (reason != Reason::None) text.append(" (").append(name_of(reason)).append(")");
  if (!message.empty()) text.append(": ").append(message);
  return text;
}

}  // namespace arcomm

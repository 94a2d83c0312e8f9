// Errors as values: one code, one reason, one message. No exception crosses a room.
// ErrorCode is gRPC's canonical number, so that ring, gRPC, C ABI and log show the same one; Reason
// says which of our own situations it was (what a program may branch on), and `rank` who caused it,
// where that is known.
#pragma once

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace arcomm {

// X(name, number, text). Numbers are those of grpc::StatusCode and never change.
#define ARC_ERROR_CODES(X)                        \
  X(Ok, 0, "success")                             \
  X(Cancelled, 1, "cancelled")                    \
  X(Unknown, 2, "unknown error")                  \
  X(InvalidArgument, 3, "invalid argument")       \
  X(DeadlineExceeded, 4, "deadline exceeded")     \
  X(NotFound, 5, "not found")                     \
  X(AlreadyExists, 6, "already exists")           \
  X(PermissionDenied, 7, "permission denied")     \
  X(ResourceExhausted, 8, "resource exhausted")   \
  X(FailedPrecondition, 9, "failed precondition") \
  X(Aborted, 10, "aborted")                       \
  X(OutOfRange, 11, "out of range")               \
  X(Unimplemented, 12, "not implemented")         \
  X(Internal, 13, "internal error")               \
  X(Unavailable, 14, "unavailable")               \
  X(DataLoss, 15, "data loss")                    \
  X(Unauthenticated, 16, "unauthenticated")

// X(name, number, text). Appended to, never renumbered: the number crosses the ring and the C ABI.
#define ARC_REASONS(X)                                                    \
  X(None, 0, "no further reason")                                         \
  X(BadValue, 1, "a value is not allowed")                                \
  X(OutOfBounds, 2, "a range leaves its registered buffer")               \
  X(UnknownHandle, 3, "a handle is unknown, freed or of another session") \
  X(Mismatch, 4, "the ranks asked for different operations")              \
  X(Timeout, 5, "the deadline passed")                                    \
  X(RemoteDied, 6, "the process of another rank died")                    \
  X(RemoteAborted, 7, "another rank aborted the communicator")            \
  X(Revoked, 8, "the communicator was revoked by an earlier failure")     \
  X(Crossed, 9, "ranks wait for each other on different communicators")   \
  X(Quota, 10, "a quota is used up")                                      \
  X(ShuttingDown, 11, "the daemon is shutting down")                      \
  X(DaemonLost, 12, "the daemon is gone")                                 \
  X(NotRunning, 13, "no daemon answers")                                  \
  X(Forked, 14, "this process was forked after arcInit")                  \
  X(Permission, 15, "the caller may not do this")                         \
  X(Version, 16, "client and daemon speak different versions")            \
  X(Quarantined, 17, "the session broke the ring protocol")               \
  X(OutOfMemory, 18, "memory or descriptors are used up")                 \
  X(BadConfig, 19, "the configuration is wrong")                          \
  X(Corrupt, 20, "bytes that must not change were changed")               \
  X(Unsupported, 21, "this build or machine cannot do this")              \
  X(Bug, 22, "a defect of arcommd: please report it")                     \
  X(Reordered, 23, "the ranks ran what their graphs hold in different orders")

enum class ErrorCode : std::uint8_t {
#define X(name, number, text) name = number,
  ARC_ERROR_CODES(X)
#undef X
};

enum class Reason : std::uint8_t {
#define X(name, number, text) name = number,
  ARC_REASONS(X)
#undef X
};

// "InvalidArgument" and "invalid argument". Out-of-range numbers give "Unknown…" texts, never a
// crash.
std::string_view name_of(ErrorCode code);
std::string_view text_of(ErrorCode code);
std::string_view name_of(Reason reason);
std::string_view text_of(Reason reason);
// The inverse for numbers read from elsewhere.
ErrorCode error_code_from(unsigned number);
Reason reason_from(unsigned number);

struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::Unknown;
  Reason reason = Reason::None;
  std::string message;  // what, where and what to do; values included
  int rank = -1;        // the rank that caused it, or -1

  // "DeadlineExceeded (Timeout): rank 2 did not arrive"
  std::string to_string() const;
};

// Builds an Error from streamable parts: error(ErrorCode::NotFound, Reason::UnknownHandle, "buffer
// ", id).
template <typename... Parts>
Error error(ErrorCode code, Reason reason, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return Error{code, reason, text.str(), -1};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : held_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error failure)
      : held_(std::in_place_index<1>, std::move(failure)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return held_.index() == 0; }
  explicit operator bool() const { return ok(); }
  // Precondition of value(): ok(). Precondition of error(): !ok(). A breach throws
  // std::bad_variant_access.
  T& value() & { return std::get<0>(held_); }
  const T& value() const& { return std::get<0>(held_); }
  T&& value() && { return std::get<0>(std::move(held_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const& { return std::get<1>(held_); }
  Error&& error() && { return std::get<1>(std::move(held_)); }

 private:
  std::variant<T, Error> held_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error failure) : failure_(std::move(failure)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !failure_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& { return failure_.value(); }
  Error&& error() && { return std::move(failure_).value(); }

 private:
  std::optional<Error> failure_;
};

using Status = Result<void>;

// if (Status s = f(); !s) return s.error(), in one line.
#define ARC_RETURN_IF_ERROR(expression)                                                    \
  do {                                                                                     \
    if (auto arc_status = (expression); !arc_status) return std::move(arc_status).error(); \
  } while (false)

}  // namespace arcomm

#include "client/arctl/command_line/exit_code.h"

#include <cstdio>

namespace arcomm::arctl {
namespace {

ExitCode from_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::Ok:
      return ExitCode::Ok;
    case ErrorCode::PermissionDenied:
    case ErrorCode::Unauthenticated:
      return ExitCode::Permission;
    case ErrorCode::NotFound:
      return ExitCode::NotFound;
    case ErrorCode::DeadlineExceeded:
      return ExitCode::Timeout;
    case ErrorCode::Unavailable:
      return ExitCode::NotRunning;
    case ErrorCode::Cancelled:
    case ErrorCode::Unknown:
    case ErrorCode::InvalidArgument:
    case ErrorCode::AlreadyExists:
    case ErrorCode::ResourceExhausted:
    case ErrorCode::FailedPrecondition:
    case ErrorCode::Aborted:
    case ErrorCode::OutOfRange:
    case ErrorCode::Unimplemented:
    case ErrorCode::Internal:
    case ErrorCode::DataLoss:
      return ExitCode::Failure;
  }
  return ExitCode::Failure;
}

}  // namespace

ExitCode exit_code_for(const Error& failure) {
  // The reason is finer than the code: a dead daemon may end a call as Aborted as well as
  // Unavailable.
  if (failure.reason == Reason::NotRunning || failure.reason == Reason::DaemonLost) {
    return ExitCode::NotRunning;
  }
  if (failure.reason == Reason::Permission) return ExitCode::Permission;
  return from_code(failure.code);
}

ExitCode report(const Error& failure) {
  const std::string text = failure.message.empty() ? failure.to_string() : failure.message;
  std::fprintf(stderr, "arctl: %s\n", text.c_str());
  return exit_code_for(failure);
}

}  // namespace arcomm::arctl

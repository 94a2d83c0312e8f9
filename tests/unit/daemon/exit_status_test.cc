// Whether systemd starts a daemon again that could not start.
#include "daemon/exit_status.h"

#include <gtest/gtest.h>

namespace arcomm {
namespace {

ExitStatus status_of(ErrorCode code, Reason reason) {
  return exit_status_for(error(code, reason, "cannot start"));
}

TEST(ExitStatus, IsTwoForAConfigurationThatAPersonMustCorrect) {
  EXPECT_EQ(status_of(ErrorCode::InvalidArgument, Reason::BadConfig), 2);
  EXPECT_EQ(status_of(ErrorCode::NotFound, Reason::BadConfig), 2);
  EXPECT_EQ(status_of(ErrorCode::PermissionDenied, Reason::BadConfig), 2);
}

TEST(ExitStatus, IsOneForWhatMayBeBetterAtTheNextStart) {
  EXPECT_EQ(status_of(ErrorCode::Unavailable, Reason::BadConfig), 1) << "a disk that is full";
  EXPECT_EQ(status_of(ErrorCode::ResourceExhausted, Reason::OutOfMemory), 1);
  EXPECT_EQ(status_of(ErrorCode::InvalidArgument, Reason::None), 1);
}

TEST(ExitStatus, IsThreeForASecondDaemon) {
  EXPECT_EQ(status_of(ErrorCode::AlreadyExists, Reason::None), 3);
}

}  // namespace
}  // namespace arcomm

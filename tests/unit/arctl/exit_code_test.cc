#include "client/arctl/command_line/exit_code.h"

#include <gtest/gtest.h>

namespace arcomm::arctl {
namespace {

TEST(ExitCodes, SayWhatKindOfFailureItWas) {
  EXPECT_EQ(exit_code_for({ErrorCode::Unavailable, Reason::NotRunning, "", -1}),
            ExitCode::NotRunning);
  EXPECT_EQ(exit_code_for({ErrorCode::Aborted, Reason::DaemonLost, "", -1}), ExitCode::NotRunning);
  EXPECT_EQ(exit_code_for({ErrorCode::PermissionDenied, Reason::Permission, "", -1}),
            ExitCode::Permission);
  EXPECT_EQ(exit_code_for({ErrorCode::NotFound, Reason::None, "", -1}), ExitCode::NotFound);
  EXPECT_EQ(exit_code_for({ErrorCode::DeadlineExceeded, Reason::Timeout, "", -1}),
            ExitCode::Timeout);
  EXPECT_EQ(exit_code_for({ErrorCode::InvalidArgument, Reason::BadConfig, "", -1}),
            ExitCode::Failure);
}

}  // namespace
}  // namespace arcomm::arctl

#include "client/src/session/fork.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/include/arclient.h"

namespace arcomm::client {
namespace {

// Runs `body` in a forked child and returns its exit code.
template <typename Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Fork, RefusesEveryCallInTheChildAndNoneInTheParent) {
  watch_for_fork();
  const int code = in_child([] {
    arcUniqueId id;
    arcErrorInfo_t info{};
    info.struct_size = sizeof(info);
    if (arcGetUniqueId(&id) != arcFailedPrecondition) return 1;
    arcGetLastErrorInfo(&info);
    if (info.reason != arcReasonForked) return 2;
    if (arcInit(nullptr) != arcFailedPrecondition) return 3;
    if (arcFinalize() != arcFailedPrecondition) return 4;
    if (arcWait(1, 1) != arcFailedPrecondition) return 5;
    if (arcGroupEnd() != arcFailedPrecondition) return 6;
    return 0;
  });
  EXPECT_EQ(code, 0);
  arcUniqueId id;
  EXPECT_EQ(arcGetUniqueId(&id), arcSuccess);
}

TEST(Fork, ClosesTheParentsSocketsInTheChildOnly) {
  watch_for_fork();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  close_in_forked_child(ends[0]);
  EXPECT_EQ(in_child([&] {
              return ::fcntl(ends[0], F_GETFD) < 0 && ::fcntl(ends[1], F_GETFD) >= 0 ? 0 : 1;
            }),
            0);
  EXPECT_GE(::fcntl(ends[0], F_GETFD), 0);
  keep_in_forked_child(ends[0]);
  EXPECT_EQ(in_child([&] { return ::fcntl(ends[0], F_GETFD) >= 0 ? 0 : 1; }), 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace arcomm::client

// What systemd passes at the start: its sockets, and descriptors that another version left there.
#include "daemon/control/access/listener.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

namespace arcomm::test {
namespace {

InheritedSocket passed(int fd, std::string name, std::string path) {
  return {.fd = UniqueFd(fd), .name = std::move(name), .path = std::move(path)};
}

TEST(PassedSockets, AStoredDescriptorThatThisVersionDoesNotKnowIsDropped) {
  std::vector<InheritedSocket> all;
  all.push_back(passed(::memfd_create("journal", MFD_CLOEXEC), "journal0", ""));
  all.push_back(passed(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "client",
                       "/run/arcommd/client.sock"));
  const int foreign = all[0].fd.get();
  ASSERT_GE(foreign, 0);
  const auto taken = take_passed_sockets(std::move(all));
  ASSERT_TRUE(taken) << taken.error().to_string();
  ASSERT_EQ(taken->size(), 1u);
  EXPECT_EQ(taken->front().kind(), SocketKind::Client);
  EXPECT_LT(::fcntl(foreign, F_GETFD), 0) << "it is still open";
}

TEST(PassedSockets, ASocketOfTheWrongTypeIsAMistakeInTheUnit) {
  std::vector<InheritedSocket> all;
  all.push_back(
      passed(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "fd", "/run/arcommd/fd.sock"));
  const auto taken = take_passed_sockets(std::move(all));
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(taken.error().reason, Reason::BadConfig);
}

}  // namespace
}  // namespace arcomm::test

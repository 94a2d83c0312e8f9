// What is asked about a stranger's descriptor must not be asked of the stranger.
#include "daemon/control/descriptors/fd_wire.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <chrono>
#include <cstring>
#include <future>
#include <string>
#include <thread>

#include "tests/support/sessions/descriptor_message.h"

namespace arcomm::test {
namespace {

constexpr uid_t kSenderUid = 1000;

// Sent as an Offer and received. The sender's copy is closed by the caller.
struct Offered {
  explicit Offered(int fd) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    client.reset(ends[0]);
    daemon.reset(ends[1]);
    EXPECT_TRUE(support::send_descriptor(client.get(), fd));
  }
  // How many of the descriptors it kept as memory.
  std::size_t receive() {
    FdRequest request;
    const auto received = receive_fd_request(daemon.get(), request, closer, kSenderUid);
    EXPECT_TRUE(received && *received == FdReceive::Message);
    return request.fds.size();
  }
  UniqueFd client, daemon;
  FdCloser closer;
};

// A file system whose server answers until a folder is open, and then to nothing.
class SilentFileSystem {
 public:
  // False: this process may not mount one.
  bool open() {
    char name[] = "/tmp/arcomm-silent-XXXXXX";
    device_.reset(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (!device_ || ::mkdtemp(name) == nullptr) return false;
    const std::string options =
        "fd=" + std::to_string(device_.get()) + ",rootmode=40000,user_id=0,group_id=0";
    const bool mounted =
        ::mount("arcomm-silent", name, "fuse", MS_NOSUID | MS_NODEV, options.c_str()) == 0;
    if (mounted) {
      server_ = std::thread([this] { answer_until_open(); });
      folder_.reset(::open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      ::umount2(name, MNT_DETACH);
      server_.join();
    }
    ::rmdir(name);
    return mounted && folder_;
  }
  int folder() const { return folder_.get(); }
  void end() { device_.reset(); }  // whoever waits for an answer gets an error

 private:
  void answer_until_open() {
    alignas(fuse_in_header) char request[FUSE_MIN_READ_BUFFER];
    while (::read(device_.get(), request, sizeof(request)) > 0) {
      fuse_in_header asked{};
      std::memcpy(&asked, request, sizeof(asked));
      fuse_init_out init{};
      init.major = FUSE_KERNEL_VERSION;
      init.minor = 31;
      init.max_write = 4096;
      const fuse_open_out opened{};
      const bool is_init = asked.opcode == FUSE_INIT, is_open = asked.opcode == FUSE_OPENDIR;
      char answer[sizeof(fuse_out_header) + sizeof(init)];
      fuse_out_header header{.len = sizeof(header), .error = 0, .unique = asked.unique};
      if (is_init) {
        std::memcpy(answer + sizeof(header), &init, sizeof(init));
        header.len += sizeof(init);
      } else if (is_open) {
        std::memcpy(answer + sizeof(header), &opened, sizeof(opened));
        header.len += sizeof(opened);
      } else {
        header.error = -ENOSYS;
      }
      std::memcpy(answer, &header, sizeof(header));
      if (::write(device_.get(), answer, header.len) < 0 || is_open) return;
    }
  }

  UniqueFd device_, folder_;
  std::thread server_;
};

TEST(FdWire, AsksNoFileSystemInUserSpaceAboutItsFile) {
  SilentFileSystem silent;
  if (!silent.open()) GTEST_SKIP() << "may not mount a file system in user space";
  Offered offered(silent.folder());
  auto kept = std::async(std::launch::async, [&] { return offered.receive(); });
  const bool prompt = kept.wait_for(std::chrono::seconds(3)) == std::future_status::ready;
  EXPECT_TRUE(prompt);
  silent.end();
  EXPECT_EQ(kept.get(), 0u);
}

TEST(FdWire, KeepsMemoryAndNothingElse) {
  const UniqueFd memory(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(Offered(memory.get()).receive(), 1u);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(Offered(null.get()).receive(), 0u);
}

// The number of a GPU driver's device, on a file that nobody has opened.
TEST(FdWire, TakesTheNameOfADeviceForNoDevice) {
  const std::string path = "/tmp/arcomm-device-" + std::to_string(::getpid());
  if (::mknod(path.c_str(), S_IFCHR | 0600, makedev(195, 255)) != 0)
    GTEST_SKIP() << "may not make a device: " << std::strerror(errno);
  const UniqueFd name(::open(path.c_str(), O_PATH | O_CLOEXEC));
  ::unlink(path.c_str());
  ASSERT_TRUE(name);
  EXPECT_EQ(Offered(name.get()).receive(), 0u);
}

}  // namespace
}  // namespace arcomm::test

#include "transport/peer/host_shm.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace arcomm {
namespace {

constexpr int kUsualSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

UniqueFd memfd(std::uint64_t bytes, int seals) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  if (seals != 0) {
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  }
  return fd;
}

void expect_refused(int fd, std::uint64_t offset, std::uint64_t length, ErrorCode code,
                    const std::string& words) {
  const auto mapping = PeerMapping::map(fd, offset, length);
  ASSERT_FALSE(mapping.ok()) << words;
  EXPECT_EQ(mapping.error().code, code);
  EXPECT_NE(mapping.error().message.find(words), std::string::npos) << mapping.error().message;
}

TEST(PeerMapping, SharesTheBytesAskedForAtAnyOffset) {
  const UniqueFd fd = memfd(std::uint64_t{3} * 4096, kUsualSeals);
  for (const std::uint64_t offset : {0U, 1U, 4095U, 4096U, 5000U}) {
    auto mapping = PeerMapping::map(fd.get(), offset, 100);
    ASSERT_TRUE(mapping.ok()) << mapping.error().to_string();
    EXPECT_EQ(mapping->bytes(), 100U);
    std::memset(mapping->data(), static_cast<int>(offset % 251) + 1, 100);
    unsigned char seen[100];
    ASSERT_EQ(::pread(fd.get(), seen, 100, static_cast<off_t>(offset)), 100);
    EXPECT_EQ(seen[0], offset % 251 + 1);
    EXPECT_EQ(seen[99], offset % 251 + 1);
  }
}

TEST(PeerMapping, OutlivesTheDescriptorAndMoves) {
  UniqueFd fd = memfd(4096, kUsualSeals);
  auto first = PeerMapping::map(fd.get(), 0, 4096);
  ASSERT_TRUE(first.ok());
  fd.reset();
  PeerMapping second = *std::move(first);
  second.data()[0] = std::byte{7};
  PeerMapping third;
  EXPECT_FALSE(third);
  third = std::move(second);
  EXPECT_EQ(third.data()[0], std::byte{7});
  EXPECT_EQ(third.bytes(), 4096U);
}

TEST(PeerMapping, RefusesMemoryThatMayShrink) {
  const UniqueFd fd = memfd(4096, F_SEAL_GROW);
  expect_refused(fd.get(), 0, 4096, ErrorCode::FailedPrecondition, "F_SEAL_SHRINK");
}

TEST(PeerMapping, RefusesMemoryThatCannotBeWritten) {
  const UniqueFd sealed = memfd(4096, kUsualSeals | F_SEAL_WRITE);
  expect_refused(sealed.get(), 0, 4096, ErrorCode::FailedPrecondition, "sealed against writing");
  const UniqueFd fd = memfd(4096, kUsualSeals);
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  const UniqueFd read_only(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(read_only);
  expect_refused(read_only.get(), 0, 4096, ErrorCode::FailedPrecondition, "not open for reading");
}

TEST(PeerMapping, RefusesWhatIsNoMemfd) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reading(ends[0]), writing(ends[1]);
  expect_refused(ends[0], 0, 4096, ErrorCode::FailedPrecondition, "not a memfd");
  expect_refused(-1, 0, 4096, ErrorCode::FailedPrecondition, "not a memfd");
}

TEST(PeerMapping, RefusesHugePages) {
  const UniqueFd huge(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!huge) {
    // Without huge pages in the kernel nobody can offer them either.
    EXPECT_TRUE(errno == ENOSYS || errno == ENOENT || errno == EINVAL || errno == ENODEV) << errno;
    return;
  }
  ASSERT_EQ(::ftruncate(huge.get(), off_t{1} << 30), 0);
  ASSERT_EQ(::fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  expect_refused(huge.get(), 0, 4096, ErrorCode::FailedPrecondition, "MFD_HUGETLB");
}

TEST(PeerMapping, RefusesRangesOutsideOfTheMemory) {
  const UniqueFd fd = memfd(8192, kUsualSeals);
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  expect_refused(fd.get(), 0, 8193, ErrorCode::OutOfRange, "8192");
  expect_refused(fd.get(), 8192, 1, ErrorCode::OutOfRange, "8192");
  expect_refused(fd.get(), 0, 0, ErrorCode::InvalidArgument, "0 bytes");
  expect_refused(fd.get(), kHuge, 2, ErrorCode::OutOfRange, "8192");
  expect_refused(fd.get(), 4096, kHuge, ErrorCode::OutOfRange, "8192");
}

}  // namespace
}  // namespace arcomm

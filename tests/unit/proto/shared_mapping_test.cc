#include "proto/shared_mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "proto/unique_fd.h"

namespace arcomm {
namespace {

using Access = SharedMapping::Access;

const auto kPage = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));

UniqueFd memfd(std::uint64_t bytes, int seals = 0) {
  UniqueFd fd(::memfd_create("arcomm-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  if (seals != 0) {
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  }
  return fd;
}

// The same file, open for reading alone.
UniqueFd reopened_for_reading(const UniqueFd& fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

bool is_mapped(const void* address) {
  unsigned char in_core = 0;
  return ::mincore(const_cast<void*>(address), 1, &in_core) == 0;
}

Error failure(int fd, const SharedMapping::Options& options) {
  Result<SharedMapping> mapping = SharedMapping::map(fd, options);
  if (!mapping) return std::move(mapping).error();
  ADD_FAILURE() << "mapped " << mapping->bytes() << " bytes";
  return {ErrorCode::Ok, Reason::None, "", -1};
}

TEST(SharedMapping, ShowsTwoOwnersTheSameBytes) {
  const UniqueFd fd = memfd(2 * kPage);
  Result<SharedMapping> one = SharedMapping::map(fd.get(), {.length_bytes = 2 * kPage});
  Result<SharedMapping> other = SharedMapping::map(
      fd.get(), {.length_bytes = 2 * kPage, .access = Access::ReadOnly, .is_prefaulted = true});
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->bytes(), 2 * kPage);
  EXPECT_NE(one->data(), other->data());
  std::memcpy(one->data() + kPage + 5, "hello", 5);
  EXPECT_EQ(std::memcmp(other->data() + kPage + 5, "hello", 5), 0);
}

TEST(SharedMapping, OutlivesTheDescriptor) {
  UniqueFd fd = memfd(kPage);
  Result<SharedMapping> mapping = SharedMapping::map(fd.get(), {.length_bytes = kPage});
  ASSERT_TRUE(mapping.ok());
  fd.reset();
  *mapping->data() = std::byte{7};
  EXPECT_EQ(*mapping->data(), std::byte{7});
}

TEST(SharedMapping, BeginsWhereItWasToldToWhateverThePage) {
  const UniqueFd fd = memfd(3 * kPage);
  ASSERT_EQ(::pwrite(fd.get(), "mark", 4, static_cast<off_t>(kPage + 100)), 4);
  Result<SharedMapping> mapping =
      SharedMapping::map(fd.get(), {.offset_bytes = kPage + 100, .length_bytes = kPage});
  ASSERT_TRUE(mapping.ok());
  EXPECT_EQ(mapping->bytes(), kPage);
  EXPECT_EQ(std::memcmp(mapping->data(), "mark", 4), 0);
}

TEST(SharedMapping, UnmapsWhenItEnds) {
  const UniqueFd fd = memfd(3 * kPage);
  const std::byte* base = nullptr;
  {
    Result<SharedMapping> mapping = SharedMapping::map(
        fd.get(), {.offset_bytes = kPage + 100, .length_bytes = 2 * kPage - 100});
    ASSERT_TRUE(mapping.ok());
    base = mapping->data() - 100;
    EXPECT_TRUE(is_mapped(base));
    EXPECT_TRUE(is_mapped(base + kPage));
  }
  EXPECT_FALSE(is_mapped(base));
  EXPECT_FALSE(is_mapped(base + kPage));
}

TEST(SharedMapping, LeavesNothingBehindWhereItWasMovedFrom) {
  static_assert(!std::is_copy_constructible_v<SharedMapping>);
  const UniqueFd fd = memfd(kPage);
  Result<SharedMapping> mapping = SharedMapping::map(fd.get(), {.length_bytes = kPage});
  ASSERT_TRUE(mapping.ok());
  std::byte* const base = mapping->data();
  SharedMapping moved = std::move(*mapping);
  EXPECT_FALSE(*mapping);  // NOLINT(bugprone-use-after-move): it is to be empty
  EXPECT_EQ(mapping->bytes(), 0u);
  EXPECT_EQ(moved.data(), base);
  Result<SharedMapping> second = SharedMapping::map(fd.get(), {.length_bytes = kPage});
  ASSERT_TRUE(second.ok());
  moved = std::move(*second);  // what it had is unmapped
  EXPECT_TRUE(moved);
  EXPECT_FALSE(is_mapped(base));
}

TEST(SharedMapping, NamesADescriptorThatIsNone) {
  const Error why = failure(-1, {.length_bytes = kPage, .what = "the doorbells"});
  EXPECT_EQ(why.code, ErrorCode::FailedPrecondition);
  EXPECT_NE(why.message.find("the doorbells: descriptor -1"), std::string::npos) << why.message;
}

TEST(SharedMapping, RefusesAnEmptyRange) {
  const UniqueFd fd = memfd(kPage);
  EXPECT_EQ(failure(fd.get(), {.length_bytes = 0}).code, ErrorCode::InvalidArgument);
}

TEST(SharedMapping, RefusesWhatLiesBeyondTheFile) {
  const UniqueFd fd = memfd(kPage + 1);
  EXPECT_TRUE(SharedMapping::map(fd.get(), {.length_bytes = 2 * kPage}).ok());  // the last page
  for (const auto& [offset, length] : {std::pair{std::uint64_t{0}, 2 * kPage + 1},
                                       {kPage, kPage + 1},
                                       {2 * kPage, std::uint64_t{1}},
                                       {~std::uint64_t{0}, std::uint64_t{2}},
                                       {kPage, ~std::uint64_t{0}}}) {
    const Error why = failure(fd.get(), {.offset_bytes = offset, .length_bytes = length});
    EXPECT_EQ(why.code, ErrorCode::OutOfRange) << offset << " + " << length;
  }
  EXPECT_EQ(failure(memfd(0).get(), {.length_bytes = 1}).code, ErrorCode::OutOfRange);
}

TEST(SharedMapping, DoesNotWriteThroughADescriptorForReading) {
  const UniqueFd fd = memfd(kPage);
  const UniqueFd reading = reopened_for_reading(fd);
  EXPECT_EQ(failure(reading.get(), {.length_bytes = kPage}).code, ErrorCode::FailedPrecondition);
  EXPECT_TRUE(
      SharedMapping::map(reading.get(), {.length_bytes = kPage, .access = Access::ReadOnly}).ok());
}

TEST(SharedMapping, ReadsAFileThatIsSealedAgainstWriting) {
  const UniqueFd fd = memfd(kPage, F_SEAL_WRITE);
  EXPECT_EQ(failure(fd.get(), {.length_bytes = kPage}).code, ErrorCode::FailedPrecondition);
  EXPECT_TRUE(
      SharedMapping::map(fd.get(), {.length_bytes = kPage, .access = Access::ReadPrivate}).ok());
}

TEST(SharedMappingDeathTest, FaultsAtAWriteToWhatIsForReading) {
  const UniqueFd fd = memfd(kPage);
  for (const Access access : {Access::ReadOnly, Access::ReadPrivate}) {
    Result<SharedMapping> mapping =
        SharedMapping::map(fd.get(), {.length_bytes = kPage, .access = access});
    ASSERT_TRUE(mapping.ok());
    EXPECT_DEATH(*static_cast<volatile std::byte*>(mapping->data()) = std::byte{1}, "");
  }
}

TEST(SharedMapping, IsNotThereInAChildThatShallNotHaveIt) {
  const UniqueFd fd = memfd(3 * kPage);
  Result<SharedMapping> kept = SharedMapping::map(fd.get(), {.length_bytes = kPage});
  Result<SharedMapping> own = SharedMapping::map(
      fd.get(), {.offset_bytes = kPage + 8, .length_bytes = kPage, .is_inherited = false});
  ASSERT_TRUE(kept.ok() && own.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool as_told = is_mapped(kept->data()) && !is_mapped(own->data() - 8) &&
                         !is_mapped(own->data() - 8 + kPage);
    ::_exit(as_told ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace arcomm

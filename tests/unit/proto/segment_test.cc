#include "proto/ring/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace arcomm::ring {
namespace {

constexpr SessionId kSession{3, 7};

// A memfd with the header that `spoil` made of a good one.
template <typename Spoil>
UniqueFd forged(Spoil spoil, std::uint64_t bytes = segment_bytes_for(8),
                int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) {
  UniqueFd fd(::memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  SegmentHeader header;
  header.header_bytes = kPageBytes;
  header.slots = 8;
  header.segment_bytes = segment_bytes_for(8);
  spoil(header);
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::pwrite(fd.get(), &header, sizeof(header), 0), static_cast<ssize_t>(sizeof(header)));
  if (seals != 0) {
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  }
  return fd;
}
void leave_alone(SegmentHeader&) {}

TEST(Segment, BothSidesSeeTheSameRings) {
  Result<Segment> made = Segment::create(16, kSession);
  ASSERT_TRUE(made.ok());
  Result<Segment> opened = Segment::open(duplicate(made->fd()));
  ASSERT_TRUE(opened.ok()) << opened.error().to_string();
  EXPECT_EQ(opened->slots(), 16u);
  Producer<WorkRequest> producer(opened->requests());
  Consumer<WorkRequest> consumer(made->requests());
  WorkRequest request;
  request.ticket = 99;
  ASSERT_EQ(producer.push(request), Push::Done);
  WorkRequest out;
  ASSERT_EQ(consumer.pop(out), Pop::Done);
  EXPECT_EQ(out.ticket, 99u);
}

TEST(Segment, TellsWhoOpensItWhatItsDaemonTakes) {
  Result<Segment> made = Segment::create(16, kSession, kPlansInRing);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(Segment::open(duplicate(made->fd())).value().features(), kPlansInRing);
  Result<Segment> plain = Segment::create(16, kSession);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(Segment::open(duplicate(plain->fd())).value().features(), 0u);
}

TEST(Segment, ItsSizeCannotBeChangedByAnyHolder) {
  Result<Segment> made = Segment::create(8, kSession);
  ASSERT_TRUE(made.ok());
  const UniqueFd copy = duplicate(made->fd());
  EXPECT_EQ(::ftruncate(copy.get(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(copy.get(), 1 << 20), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fcntl(copy.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(Segment, AHolePunchedIntoItReadsAsABrokenRing) {
  Result<Segment> made = Segment::create(32, kSession);
  ASSERT_TRUE(made.ok());
  Producer<WorkRequest> producer(made->requests());
  Consumer<WorkRequest> consumer(made->requests());
  ASSERT_EQ(producer.push(WorkRequest{}), Push::Done);
  ASSERT_EQ(
      ::fallocate(made->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kPageBytes, kPageBytes),
      0);
  WorkRequest out;
  EXPECT_EQ(consumer.pop(out), Pop::Corrupt);
}

TEST(Segment, CreateRefusesSlotsThatAreNoPowerOfTwoOrOutOfRange) {
  for (const std::uint32_t slots : {0u, 1u, 4u, 9u, 100u, 131072u, 0xffffffffu}) {
    const Result<Segment> made = Segment::create(slots, kSession);
    ASSERT_FALSE(made.ok()) << slots;
    EXPECT_EQ(made.error().code, ErrorCode::InvalidArgument);
  }
}

TEST(Segment, OpenTakesTheForgeryThatIsRight) {
  EXPECT_TRUE(
      Segment::open(forged(leave_alone)).ok());  // or the refusals below would prove nothing
}

TEST(Segment, OpenRefusesMemoryWithoutSeals) {
  const Result<Segment> opened = Segment::open(forged(leave_alone, segment_bytes_for(8), 0));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().reason, Reason::Corrupt);
  EXPECT_FALSE(Segment::open(forged(leave_alone, segment_bytes_for(8), F_SEAL_SHRINK)).ok());
}

TEST(Segment, OpenRefusesAnotherMagic) {
  EXPECT_FALSE(Segment::open(forged([](SegmentHeader& header) { header.magic ^= 1; })).ok());
}

TEST(Segment, OpenNamesBothVersionsWhenTheyDiffer) {
  const Result<Segment> opened =
      Segment::open(forged([](SegmentHeader& header) { header.abi_major = 9; }));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::FailedPrecondition);
  EXPECT_EQ(opened.error().reason, Reason::Version);
  EXPECT_NE(opened.error().message.find("9."), std::string::npos) << opened.error().message;
}

TEST(Segment, OpenTakesANewerMinorVersion) {
  EXPECT_TRUE(Segment::open(forged([](SegmentHeader& header) { header.abi_minor = 77; })).ok());
}

TEST(Segment, OpenRefusesGeometryThatDoesNotFitItsSize) {
  const auto refused = [](auto spoil) { return !Segment::open(forged(spoil)).ok(); };
  EXPECT_TRUE(refused([](SegmentHeader& header) { header.slots = 16; }));
  EXPECT_TRUE(refused([](SegmentHeader& header) { header.slots = 0; }));
  EXPECT_TRUE(refused([](SegmentHeader& header) { header.slots = 7; }));
  EXPECT_TRUE(refused([](SegmentHeader& header) { header.slots = 0x80000000u; }));
  EXPECT_TRUE(refused([](SegmentHeader& header) { header.slot_bytes = 64; }));
  EXPECT_TRUE(refused([](SegmentHeader& header) { header.header_bytes = 0; }));
  EXPECT_FALSE(Segment::open(forged(leave_alone, 4096)).ok());
  EXPECT_FALSE(Segment::open(forged(leave_alone, segment_bytes_for(8) + 4096)).ok());
}

TEST(Segment, OpenRefusesWhatIsNotAMemfd) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd writer(ends[1]);
  EXPECT_FALSE(Segment::open(UniqueFd(ends[0])).ok());
  EXPECT_FALSE(Segment::open(UniqueFd()).ok());
}

TEST(Segment, MovesWithItsMapping) {
  Result<Segment> made = Segment::create(8, kSession);
  ASSERT_TRUE(made.ok());
  ControlLines* control = &made->control();
  Segment moved = std::move(made).value();
  EXPECT_EQ(&moved.control(), control);
  Result<Segment> other = Segment::create(8, kSession);
  ASSERT_TRUE(other.ok());
  moved = std::move(other).value();
  EXPECT_NE(moved.fd(), -1);
  moved.control().oversubscribed.store(1);  // mapped
  EXPECT_EQ(moved.control().oversubscribed.load(), 1u);
}

}  // namespace
}  // namespace arcomm::ring

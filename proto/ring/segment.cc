#include "proto/ring/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace arcomm::ring {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

bool slots_allowed(std::uint32_t slots) {
  return slots >= kMinSlots && slots <= kMaxSlots && std::has_single_bit(slots);
}

Result<SharedMapping> map(int fd, std::uint64_t bytes) {
  return SharedMapping::map(
      fd, {.length_bytes = bytes,
           .is_prefaulted = true,
           .is_inherited = false,  // a forked child must not write into its parent's rings
           .what = "a ring segment"});
}

}  // namespace

Result<Segment> Segment::create(std::uint32_t slots, SessionId session, std::uint64_t features) {
  if (!slots_allowed(slots)) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "ring slots must be a power of two in [", kMinSlots, ", ", kMaxSlots, "], got ",
                 slots);
  }
  const std::uint64_t bytes = segment_bytes_for(slots);
  UniqueFd fd(::memfd_create("arcomm-rings", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // posix_fallocate takes the pages now, so that a later touch cannot fault for lack of memory.
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "cannot create a ring segment of ", bytes, " bytes: ", std::strerror(errno));
  }
  Result<SharedMapping> mapping = map(fd.get(), bytes);
  if (!mapping) return std::move(mapping).error();
  auto* page = new (mapping->data()) SegmentPage{};
  page->header.header_bytes = kPageBytes;
  page->header.slots = slots;
  page->header.features = features;
  page->header.segment_bytes = bytes;
  page->header.session = session.bits();
  Segment segment(std::move(fd), std::move(*mapping), slots, features);
  for (std::uint64_t i = 0; i < slots; ++i) {
    segment.requests().slots[i].stamp = segment.completions().slots[i].stamp = stamp_before(i);
  }
  return segment;
}

Result<Segment> Segment::open(UniqueFd fd) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return error(ErrorCode::FailedPrecondition, Reason::Corrupt,
                 "the ring segment is not sealed against resizing: it was not made by arcommd");
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 ||
      info.st_size < static_cast<off_t>(segment_bytes_for(kMinSlots))) {
    return error(ErrorCode::FailedPrecondition, Reason::Corrupt, "the ring segment has ",
                 info.st_size, " bytes, too few for a header");
  }
  SegmentHeader header;
  if (::pread(fd.get(), &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header)) ||
      header.magic != kSegmentMagic) {
    return error(ErrorCode::FailedPrecondition, Reason::Corrupt,
                 "the ring segment does not start with its magic");
  }
  if (header.abi_major != kRingAbiMajor) {
    return error(ErrorCode::FailedPrecondition, Reason::Version, "the daemon's ring version is ",
                 header.abi_major, ".", header.abi_minor, " and this library's is ", kRingAbiMajor,
                 ".", kRingAbiMinor, ": install the same major version of both");
  }
  if (!slots_allowed(header.slots) || header.slot_bytes != kSlotBytes ||
      header.header_bytes != kPageBytes ||
      segment_bytes_for(header.slots) != static_cast<std::uint64_t>(info.st_size)) {
    return error(ErrorCode::FailedPrecondition, Reason::Corrupt,
                 "the ring segment's geometry is impossible: ", header.slots, " slots of ",
                 header.slot_bytes, " bytes in ", info.st_size, " bytes");
  }
  Result<SharedMapping> mapping = map(fd.get(), segment_bytes_for(header.slots));
  if (!mapping) return std::move(mapping).error();
  return Segment(std::move(fd), std::move(*mapping), header.slots, header.features);
}

ControlLines& Segment::control() const {
  return reinterpret_cast<SegmentPage*>(mapping_.data())->control;
}

RingView<WorkRequest> Segment::requests() const {
  auto* first = mapping_.data() + kPageBytes;
  return {&control().requests, reinterpret_cast<WorkRequest*>(first), slots_};
}

RingView<Completion> Segment::completions() const {
  auto* first = mapping_.data() + kPageBytes + std::size_t{slots_} * kSlotBytes;
  return {&control().completions, reinterpret_cast<Completion*>(first), slots_};
}

}  // namespace arcomm::ring

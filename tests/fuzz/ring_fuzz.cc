// What a client can write into its own segment: any byte, at any time, between any two steps of the
// daemon. The consumer, the producer and the decoder must stay inside the rings and inside the
// enumerations, and say Corrupt rather than guess.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "proto/ring/consumer.h"
#include "proto/ring/decode.h"
#include "proto/ring/producer.h"
#include "proto/ring/segment.h"

namespace {

using namespace arcomm;        // NOLINT(google-build-using-namespace)
using namespace arcomm::ring;  // NOLINT(google-build-using-namespace)

constexpr std::uint32_t kSlots = 8;

void check_decoded_plan(const WorkRequest& slot) {
  PlanRequest request;
  const char* detail = nullptr;
  const Decode form = decode(slot, request, detail);
  if (request.ticket != slot.ticket) __builtin_trap();
  if (form != Decode::Done) {
    if (detail == nullptr || *detail == '\0') __builtin_trap();
    return;
  }
  if (request.removed.valid()) return;
  if (!request.member.valid() || find_fault(request.spec) != nullptr) __builtin_trap();
}

void check_decoded(const WorkRequest& slot) {
  check_decoded_plan(slot);
  Request request;
  const char* detail = nullptr;
  switch (decode(slot, request, detail)) {
    case Decode::Done:
      if (!request.member.valid()) __builtin_trap();
      if (request.plan.valid()) return;
      if (text_of(request.spec.collective) == "unknown collective" ||
          text_of(request.spec.codec) == "unknown codec")
        __builtin_trap();
      if (request.spec.element_bytes() == 0 || text_of(request.spec.op) == "unknown operation")
        __builtin_trap();
      if (request.spec.send_bytes() / request.spec.element_bytes() != request.spec.send_count ||
          request.spec.recv_bytes() / request.spec.element_bytes() != request.spec.recv_count)
        __builtin_trap();
      return;
    case Decode::BadValue:
    case Decode::BadMagic:
      if (detail == nullptr || *detail == '\0') __builtin_trap();
      return;
  }
  __builtin_trap();
}

// One honest daemon on both rings; the input plays the client, one command of 12 bytes at a time.
void fuzz_rings(const std::uint8_t* data, std::size_t size) {
  static Segment* segment = new Segment(Segment::create(kSlots, SessionId{1, 1}).value());
  std::memset(static_cast<void*>(&segment->control()), 0, sizeof(ControlLines));
  for (std::uint64_t i = 0; i < kSlots; ++i) {
    segment->requests().slots[i] = WorkRequest{};
    segment->requests().slots[i].stamp = stamp_before(i);
  }
  Consumer<WorkRequest> requests(segment->requests());
  Producer<Completion> completions(segment->completions());
  auto* bytes = reinterpret_cast<std::uint8_t*>(segment->requests().slots) - kPageBytes;
  const std::uint64_t segment_bytes = segment_bytes_for(kSlots);
  bool broken = false;
  std::uint64_t published = 0;
  for (std::size_t at = 0; at + 12 <= size; at += 12) {
    std::uint32_t where = 0;
    std::uint64_t value = 0;
    std::memcpy(&where, data + at, 4);
    std::memcpy(&value, data + at + 4, 8);
    switch (where & 3) {
      case 0:  // a word anywhere in the segment
        std::memcpy(bytes + (where >> 2) % (segment_bytes - 7), &value, 8);
        break;
      case 1: {  // an honest publication of whatever lies in the slot
        WorkRequest* slots = segment->requests().slots;
        slots[published & (kSlots - 1)].stamp = stamp_of(published, kSlots);
        ++published;
        break;
      }
      case 2: {
        WorkRequest slot;
        const std::uint64_t before = requests.position();
        const Pop popped = broken ? Pop::Corrupt : requests.pop(slot);
        if (popped == Pop::Done) {
          if (requests.position() != before + 1 || slot.stamp != stamp_of(before, kSlots))
            __builtin_trap();
          check_decoded(slot);
        } else if (requests.position() != before) {
          __builtin_trap();
        }
        broken |= popped == Pop::Corrupt;
        break;
      }
      case 3: {
        const std::uint64_t before = completions.position();
        const Push pushed = completions.push(Completion{});
        if (completions.position() - before != (pushed == Push::Done ? 1u : 0u)) __builtin_trap();
        break;
      }
    }
  }
}

void fuzz_slot(const std::uint8_t* data, std::size_t size) {
  if (size < sizeof(WorkRequest)) return;
  WorkRequest slot;
  std::memcpy(static_cast<void*>(&slot), data, sizeof(slot));
  check_decoded(slot);
  for (const std::uint16_t magic : {kRequestMagic, kPlanMagic}) {  // most inputs would end there
    slot.magic = magic;
    check_decoded(slot);
  }
}

// A segment that did not come from arcommd.
void fuzz_open(const std::uint8_t* data, std::size_t size) {
  UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (::ftruncate(fd.get(), static_cast<off_t>(segment_bytes_for(kSlots))) != 0) return;
  if (::pwrite(fd.get(), data, std::min(size, kPageBytes), 0) < 0) return;
  ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  Result<Segment> opened = Segment::open(std::move(fd));
  if (opened && opened->slots() != kSlots) __builtin_trap();  // the file holds exactly that many
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  switch (data[0] % 3) {
    case 0:
      fuzz_rings(data + 1, size - 1);
      break;
    case 1:
      fuzz_slot(data + 1, size - 1);
      break;
    case 2:
      fuzz_open(data + 1, size - 1);
      break;
  }
  return 0;
}

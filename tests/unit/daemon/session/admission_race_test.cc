// A request that is rewritten while it is read, without the processes around it: the ring's copy,
// decode and admission against a thread that does nothing but write into the slot. What they check
// must be what they use. Fault matrix 12; from end to end: tests/integration/faults/requests.cc.
// How often: ARCOMM_RACE_OPERATIONS. Not for ThreadSanitizer: the race is the client's, on purpose.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>

#include "daemon/exec/clock.h"
#include "daemon/session/admission.h"

namespace arcomm::test {
namespace {

constexpr std::uint32_t kBatch = 64;
constexpr std::uint64_t kBytes = 65536;
constexpr std::uint64_t kSmall = 8, kLarge = 4096, kNear = 0, kFar = kBytes - 4 * kLarge;
// Each alone is refused, by another check than the others.
constexpr std::uint64_t kOverflows = std::uint64_t{1} << 62, kLeaves = kBytes, kOdd = 2;

std::uint64_t operations_to_race() {
  const char* text = std::getenv("ARCOMM_RACE_OPERATIONS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1'000'000;
}

template <typename T>
void overwrite(T& field, T value) {
  std::atomic_ref<T>(field).store(value, std::memory_order_relaxed);
}

// Rewrites the fields of whatever slot it is pointed at, as fast as it can.
class Rewriter {
 public:
  Rewriter(BufferId here, BufferId there) : buffers_{here.bits(), there.bits(), 0} {}
  ~Rewriter() {
    done_.store(true, std::memory_order_relaxed);
    thread_.join();
  }
  void aim(ring::WorkRequest& slot) { slot_.store(&slot, std::memory_order_release); }

 private:
  void run() {
    std::uint64_t state = 88172645463325252ull;
    const std::uint64_t counts[] = {kSmall, kLarge, kSmall, kOverflows};
    const std::uint64_t offsets[] = {kNear, kFar, kLeaves, kOdd};
    while (!done_.load(std::memory_order_relaxed)) {
      ring::WorkRequest* slot = slot_.load(std::memory_order_acquire);
      if (slot == nullptr) continue;
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      switch (state % 4) {
        case 0:
          overwrite(slot->send_count, counts[state >> 8 & 3]);
          overwrite(slot->recv_count, counts[state >> 8 & 3]);
          break;
        case 1:
          overwrite(slot->send_offset_bytes, offsets[state >> 8 & 3]);
          break;
        case 2:
          overwrite(slot->recv_buffer, buffers_[(state >> 8) % 3]);
          break;
        default:  // to a type of other size, and to none
          overwrite(slot->dtype, static_cast<std::uint8_t>(state >> 8 & 15));
      }
    }
  }

  const std::uint64_t buffers_[3];
  std::atomic<ring::WorkRequest*> slot_{nullptr};
  std::atomic<bool> done_{false};
  std::thread thread_{[this] { run(); }};
};

class AdmissionRace : public ::testing::Test {
 protected:
  static constexpr SessionId kSession{0, 1};

  void SetUp() override {
    Result<ring::Segment> segment = ring::Segment::create(kBatch, kSession);
    ASSERT_TRUE(segment.ok());
    slots_ = segment->requests();
    session_.emplace(SessionOrigin{kSession, 800, 1000, 1000, "liar"}, std::move(*segment),
                     UniqueFd(::eventfd(0, EFD_CLOEXEC)), 16, std::make_shared<Tenant>(), now_ns());
    producer_.emplace(slots_);
    for (BufferId* id : {&send_, &recv_, &other_}) {
      UniqueFd memory(::memfd_create("race", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      ASSERT_EQ(::ftruncate(memory.get(), kBytes), 0);
      ASSERT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
      Result<BufferId> added = buffers_.add(kSession, std::move(memory), 0, kBytes);
      ASSERT_TRUE(added.ok());
      *id = *added;
    }
    Seat seat;
    seat.session = kSession;
    member_ = communicators_.form(UniqueIdBytes{}, 1, {seat}).at(0);
    communicator_ = communicators_.find(member_)->communicator;
  }

  ring::WorkRequest valid_request(std::uint64_t seq) const {
    ring::WorkRequest request;
    request.dtype = static_cast<std::uint8_t>(DType::Float32);
    request.op = static_cast<std::uint8_t>(ReduceOp::Sum);
    request.member = member_.bits();
    request.seq = seq;
    request.send_buffer = send_.bits();
    request.recv_buffer = recv_.bits();
    request.send_count = request.recv_count = kSmall;
    return request;
  }
  // A range lies inside its buffer, begins where one of the written offsets says, and can be
  // touched at both ends.
  static void expect_inside(const Buffer& buffer, const std::byte* address, std::uint64_t bytes,
                            std::initializer_list<std::uint64_t> offsets) {
    ASSERT_GE(address, buffer.base());
    const auto offset = static_cast<std::uint64_t>(address - buffer.base());
    ASSERT_TRUE(std::find(offsets.begin(), offsets.end(), offset) != offsets.end()) << offset;
    ASSERT_LE(offset + bytes, kBytes);
    const volatile std::byte* touched = address;
    static_cast<void>(touched[0]);
    static_cast<void>(touched[bytes - 1]);
  }
  void check(const Operation& operation) {
    const Signature& signature = operation.signature;
    ASSERT_TRUE(signature.send_count == kSmall || signature.send_count == kLarge)
        << signature.send_count;
    ASSERT_EQ(signature.recv_count, signature.send_count);
    ASSERT_EQ(signature.send_count, operation.record.send_count);
    ASSERT_LT(static_cast<unsigned>(signature.dtype), kDTypes);
    ASSERT_EQ(operation.send_buffer, send_);
    ASSERT_TRUE(operation.recv_buffer == recv_ || operation.recv_buffer == other_);
    expect_inside(*buffers_.find(kSession, send_), operation.send, signature.send_bytes(),
                  {kNear, kFar, kOdd});  // odd is fine for types of two bytes and of one
    expect_inside(*buffers_.find(kSession, operation.recv_buffer), operation.recv,
                  signature.recv_bytes(), {0});
    const std::byte* base = buffers_.find(kSession, send_)->base();
    ASSERT_TRUE(operation.send != base + kOdd || size_of(signature.dtype) <= 2);
    const bool as_written = signature.send_count == kSmall && signature.dtype == DType::Float32 &&
                            operation.recv_buffer == recv_ && operation.send == base;
    as_written_ += as_written ? 1 : 0;
  }
  void release(Operation* operation) {
    buffers_.drop(operation->send_buffer);
    buffers_.drop(operation->recv_buffer);
    session_->discharge();
    operations_.give(operation);
  }

  ring::RingView<ring::WorkRequest> slots_;
  std::optional<Session> session_;
  std::optional<ring::Producer<ring::WorkRequest>> producer_;
  CommunicatorTable communicators_{[](Communicator&) {}};
  BufferRegistry buffers_;
  PlanTable plans_;
  Pool<Operation> operations_{16};
  Admission admission_{communicators_, buffers_, plans_, operations_};
  MemberId member_;
  Communicator* communicator_ = nullptr;
  BufferId send_, recv_, other_;
  std::uint64_t as_written_ = 0;
};

TEST_F(AdmissionRace, UsesWhatItCheckedHoweverTheSlotChanges) {
  const std::uint64_t operations = operations_to_race();
  std::uint64_t admitted = 0, refused = 0;
  const std::uint64_t began_ns = now_ns();
  {
    Rewriter rewriter(recv_, other_);
    for (std::uint64_t i = 0; i < operations; ++i) {
      if (i % kBatch == 0) {
        for (std::uint64_t ahead = 0; ahead < kBatch; ++ahead)
          ASSERT_EQ(producer_->push(valid_request(i + ahead)), ring::Push::Done);
      }
      // The one after this: when its turn comes, the rewriter is in the middle of it.
      rewriter.aim(slots_.slots[(i + 1) % kBatch]);
      ring::WorkRequest slot;
      ASSERT_EQ(session_->pop(slot), ring::Pop::Done) << "operation " << i;
      const Admitted answer = admission_.admit(*session_, slot, began_ns);
      if (answer.verdict == Admitted::Verdict::Done) {
        ++admitted;
        ASSERT_NO_FATAL_FAILURE(check(*answer.operation)) << "operation " << i;
        release(answer.operation);
      } else {
        ++refused;
        ASSERT_EQ(answer.verdict, Admitted::Verdict::Refused) << "operation " << i;
        ASSERT_EQ(answer.operation, nullptr);
        ASSERT_TRUE(answer.failure.reason == Reason::BadValue ||
                    answer.failure.reason == Reason::OutOfBounds ||
                    answer.failure.reason == Reason::UnknownHandle)
            << answer.failure.message();
      }
      ++communicator_->seat(0).next_seq;
    }
  }
  const double seconds = static_cast<double>(now_ns() - began_ns) / 1e9;
  std::printf("%llu operations in %.1f s: %llu as first written, %llu admitted, %llu refused\n",
              static_cast<unsigned long long>(operations), seconds,
              static_cast<unsigned long long>(as_written_),
              static_cast<unsigned long long>(admitted), static_cast<unsigned long long>(refused));
  EXPECT_EQ(session_->in_flight(), 0u);
  EXPECT_EQ(operations_.taken(), 0u);
  // The race did take place: each outcome was seen.
  EXPECT_GT(as_written_, 0u);
  EXPECT_GT(admitted, as_written_);
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace arcomm::test

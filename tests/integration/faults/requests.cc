// Requests that lie about memory, and requests rewritten while they are read. Fault matrix 11
// and 12.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

// Here each takes a round trip between processes; a hundred million of them are raced in
// tests/unit/daemon/session/admission_race_test.cc.
std::uint64_t operations_to_race() {
  return std::min<std::uint64_t>(setting_from("ARCOMM_RACE_OPERATIONS", 30'000), 1'000'000);
}

class Requests : public NodeTest {
 protected:
  Requests() : NodeTest(std::chrono::seconds(150 + operations_to_race() / 1000)) {}

  void attach() {
    DaemonProcess::Options options;
    options.settings["quota.communicators"] = "1000000";
    start(options);
    Result<std::unique_ptr<RawSession>> raw = RawSession::attach(node());
    ASSERT_TRUE(raw.ok()) << raw.error().to_string();
    raw_ = std::move(*raw);
    const Result<MemberId> member = raw_->create_lone_communicator();
    ASSERT_TRUE(member.ok()) << member.error().to_string();
    member_ = *member;
    const Result<RawSession::Buffer> buffer = raw_->allocate(65536);
    ASSERT_TRUE(buffer.ok()) << buffer.error().to_string();
    buffer_ = *buffer;
  }
  void TearDown() override {
    raw_.reset();
    NodeTest::TearDown();
  }
  std::unique_ptr<RawSession> raw_;
  MemberId member_;
  RawSession::Buffer buffer_;
  std::uint64_t seq_ = 0;
};

TEST_F(Requests, RangesOutsideTheBufferAreRefusedOneByOneAndCounted) {  // 11
  ASSERT_NO_FATAL_FAILURE(attach());
  struct Lie {
    const char* what;
    std::uint64_t send_offset, recv_offset, count;
  };
  const std::uint64_t huge = ~std::uint64_t{0};
  const Lie lies[] = {
      {"count beyond the end", 0, 0, buffer_.bytes / 4 + 1},
      {"offset beyond the end", buffer_.bytes, buffer_.bytes, 1},
      {"offset and size wrap past 2^64", huge - 3, huge - 3, 2},
      {"offset near 2^64", huge & ~std::uint64_t{3}, 0, 1},
      {"count times size overflows", 0, 0, huge / 2},
      {"count is 2^62", 0, 0, std::uint64_t{1} << 62},
      {"receive range leaves the end", 0, buffer_.bytes - 4, 2},
      {"send range leaves the end", buffer_.bytes - 4, 0, 2},
      {"ranges overlap without being equal", 0, 8, 16},
      {"offset is not aligned to the element", 2, 2, 4},
  };
  double rejected = scrape().value("arcomm_rejected_total");
  for (const Lie& lie : lies) {
    ring::WorkRequest request = valid_request(member_, seq_++, buffer_.id, lie.count);
    request.send_offset_bytes = lie.send_offset;
    request.recv_offset_bytes = lie.recv_offset;
    raw_->submit(request);
    const std::optional<ring::Completion> refused = raw_->next_completion(kPrompt);
    ASSERT_TRUE(refused.has_value()) << lie.what;
    EXPECT_EQ(refused->ticket, request.ticket) << lie.what;
    EXPECT_TRUE(refused->code == static_cast<std::uint8_t>(ErrorCode::InvalidArgument) ||
                refused->code == static_cast<std::uint8_t>(ErrorCode::OutOfRange))
        << lie.what << ": " << int{refused->code} << " " << refused->detail;
    EXPECT_NE(refused->detail[0], '\0') << lie.what << ": refused without a word";
    rejected += 1;
    expect_metric_at_least("arcomm_rejected_total", {}, rejected);

    // Only that operation: the next one of the same session is served.
    raw_->submit(valid_request(member_, seq_++, buffer_.id, 16));
    const std::optional<ring::Completion> fine = raw_->next_completion(kPrompt);
    ASSERT_TRUE(fine.has_value()) << "after: " << lie.what;
    EXPECT_EQ(fine->code, 0) << "after: " << lie.what << ": " << fine->detail;
  }
  EXPECT_GE(scrape().value("arcomm_rejected_total", {"OutOfBounds"}), 5);
  expect_trace("OutOfBounds", 0);
  expect_trace("BadValue", 0);
  expect_log("(pid " + std::to_string(::getpid()) + "): request refused: send range 0 + ");
  EXPECT_EQ(traced("Ok", ::getpid()), std::size(lies)) << "the good ones between them";
}

TEST_F(Requests, UnknownAndForeignHandlesAreRefused) {  // 11
  ASSERT_NO_FATAL_FAILURE(attach());
  Result<std::unique_ptr<RawSession>> other = RawSession::attach(node());
  ASSERT_TRUE(other.ok());
  const Result<RawSession::Buffer> foreign = (*other)->allocate(4096);
  ASSERT_TRUE(foreign.ok());
  const Result<RawSession::Buffer> freed = raw_->allocate(4096);
  ASSERT_TRUE(freed.ok());
  ASSERT_TRUE(raw_->release(freed->id).ok());
  for (const BufferId id :
       {foreign->id, freed->id, BufferId{77777, 3}, BufferId{buffer_.id.index, 999}, BufferId{}}) {
    raw_->submit(valid_request(member_, seq_++, id, 16));
    const std::optional<ring::Completion> refused = raw_->next_completion(kPrompt);
    ASSERT_TRUE(refused.has_value());
    EXPECT_NE(refused->code, 0) << "buffer " << id << " was served";
    EXPECT_TRUE(refused->reason == static_cast<std::uint8_t>(Reason::UnknownHandle) ||
                refused->reason == static_cast<std::uint8_t>(Reason::BadValue))
        << refused->detail;
  }
  expect_trace("UnknownHandle", 0);
  expect_metric_at_least("arcomm_rejected_total", {"UnknownHandle"}, 3);
  expect_log("is unknown, freed or of another session");
  ring::WorkRequest request = valid_request(MemberId{4242, 1}, 0, buffer_.id, 16);
  raw_->submit(request);
  const std::optional<ring::Completion> refused = raw_->next_completion(kPrompt);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, static_cast<std::uint8_t>(ErrorCode::NotFound)) << refused->detail;
  for (const std::uint8_t nonsense : {std::uint8_t{10}, std::uint8_t{255}}) {
    request = valid_request(member_, seq_++, buffer_.id, 16);
    request.dtype = nonsense;
    raw_->submit(request);
    const std::optional<ring::Completion> told = raw_->next_completion(kPrompt);
    ASSERT_TRUE(told.has_value());
    EXPECT_EQ(told->code, static_cast<std::uint8_t>(ErrorCode::InvalidArgument)) << told->detail;
  }
}

TEST_F(Requests, MemoryThatCouldShrinkUnderTheDaemonIsRefused) {  // 14
  ASSERT_NO_FATAL_FAILURE(attach());
  const UniqueFd unsealed(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 65536), 0);
  const Result<RawSession::Buffer> refused = raw_->register_memory(unsealed.get(), 0, 65536);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::FailedPrecondition) << refused.error().to_string();
  ASSERT_EQ(::fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(raw_->register_memory(unsealed.get(), 0, 65536).ok());
  EXPECT_FALSE(raw_->register_memory(unsealed.get(), 4096, 65536).ok())
      << "beyond the end of the file";
  EXPECT_FALSE(raw_->register_memory(unsealed.get(), ~std::uint64_t{4095}, 8192).ok()) << "wraps";
  const UniqueFd device(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_FALSE(raw_->register_memory(device.get(), 0, 4096).ok()) << "not a memfd";
  expect_refusal_told("RegisterBuffer", ::getpid(), "FailedPrecondition");
  expect_refusal_told("RegisterBuffer", ::getpid(), "OutOfRange");
}

TEST_F(Requests, WhatACallHasGivenThatIsTakenBackIsGone) {
  ASSERT_NO_FATAL_FAILURE(attach());
  const UniqueFd memory(::memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(memory.get(), 65536), 0);
  ASSERT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const auto given = raw_->register_memory(memory.get(), 0, 65536, 1);
  const auto kept = raw_->register_memory(memory.get(), 0, 65536, 2);
  ASSERT_TRUE(given.ok() && kept.ok());
  ASSERT_TRUE(raw_->take_back(1).ok());
  EXPECT_FALSE(raw_->release(given->id).ok());
  EXPECT_TRUE(raw_->release(kept->id).ok());
  ASSERT_TRUE(raw_->take_back(3).ok()) << "a call that is still to come";
  const auto late = raw_->register_memory(memory.get(), 0, 65536, 3);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::Cancelled) << late.error().to_string();
  EXPECT_EQ(raw_->take_back(0).error().code, ErrorCode::InvalidArgument);
}

// The counts flip between valid and impossible values, one after the other, while the daemon reads
// it: what it checks must be what it uses. The millions of a long run: ARCOMM_RACE_OPERATIONS.
TEST_F(Requests, ARequestRewrittenWhileReadIsTakenOldOrNewAndNeverMixed) {  // 12
  ASSERT_NO_FATAL_FAILURE(attach());
  const Result<RawSession::Buffer> target = raw_->allocate(65536);
  ASSERT_TRUE(target.ok());
  auto* sent = static_cast<float*>(buffer_.base);
  auto* received = static_cast<float*>(target->base);
  std::fill(sent, sent + 16384, 7.0f);

  std::atomic<ring::WorkRequest*> victim{nullptr};
  std::atomic<bool> done{false};
  constexpr std::uint64_t kSmall = 8, kLarge = 16, kImpossible = std::uint64_t{1} << 40;
  std::thread rewriter([&] {
    std::mt19937_64 random(7);
    while (!done.load(std::memory_order_relaxed)) {
      ring::WorkRequest* slot = victim.load(std::memory_order_acquire);
      if (slot == nullptr) continue;
      const std::uint64_t values[] = {kSmall, kLarge, kImpossible};
      const std::uint64_t value = values[random() % 3];
      for (std::uint64_t* count : {&slot->send_count, &slot->recv_count})
        std::atomic_ref<std::uint64_t>(*count).store(value, std::memory_order_relaxed);
    }
  });
  std::uint64_t refused = 0, small = 0, large = 0;
  const std::uint64_t operations = operations_to_race();
  for (std::uint64_t i = 0; i < operations; ++i) {
    ring::WorkRequest request = valid_request(member_, seq_++, buffer_.id, kSmall);
    request.recv_buffer = target->id.bits();
    std::fill(received, received + 32, 0.0f);
    ring::WorkRequest* slot = raw_->request_slots() + (raw_->position() & (raw_->slots() - 1));
    victim.store(slot, std::memory_order_release);
    if (i % 64 == 0) std::this_thread::yield();
    ASSERT_EQ(raw_->submit(request), ring::Push::Done);
    const std::optional<ring::Completion> completion = raw_->next_completion(milliseconds(10000));
    ASSERT_TRUE(completion.has_value()) << "operation " << i;
    std::uint64_t reduced = 0;
    while (reduced < 32 && received[reduced] == 7.0f) ++reduced;
    for (std::uint64_t at = reduced; at < 32; ++at)
      ASSERT_EQ(received[at], 0.0f) << "a hole at " << at;
    if (completion->code == 0) {
      ASSERT_TRUE(reduced == kSmall || reduced == kLarge)
          << "operation " << i << " reduced " << reduced;
      ++(reduced == kSmall ? small : large);
    } else {
      ASSERT_EQ(reduced, 0u) << "operation " << i << " was refused and done all the same";
      ++refused;
    }
    ASSERT_EQ(raw_->control().session_state.load(),
              static_cast<std::uint32_t>(ring::SessionState::Open));
  }
  done = true;
  rewriter.join();
  RecordProperty("small", static_cast<int>(small));
  RecordProperty("large", static_cast<int>(large));
  RecordProperty("refused", static_cast<int>(refused));
  EXPECT_EQ(small + large + refused, operations);
  // What was counted and recorded is what was told, and what was done.
  const Metrics metrics = scrape();
  EXPECT_EQ(metrics.value("arcomm_rejected_total"), static_cast<double>(refused));
  EXPECT_EQ(metrics.value("arcomm_operations_total", {"Ok"}), static_cast<double>(small + large));
  const nlohmann::json trace = arctl_json(node(), {"trace", "--last", "0"});
  for (const nlohmann::json& record : trace["records"]) {
    const std::uint64_t count = record.value("send_count", std::uint64_t{0});
    const bool makes_sense =
        count != kImpossible && count == record.value("recv_count", std::uint64_t{0});
    EXPECT_EQ(record.value("code", ""), makes_sense ? "Ok" : "InvalidArgument");
    ASSERT_TRUE(count == kSmall || count == kLarge || count == kImpossible) << record.dump();
  }
}

TEST_F(Requests, RandomBytesInTheSlotsNeverHarmTheDaemon) {  // 12
  ASSERT_NO_FATAL_FAILURE(attach());
  std::mt19937_64 random(11);
  const std::uint64_t operations = operations_to_race() / 4;
  std::uint64_t answered = 0;
  for (std::uint64_t i = 0; i < operations; ++i) {
    ring::WorkRequest request = valid_request(member_, seq_, buffer_.id, 16);
    if (i % 4 == 3) request.magic = ring::kPlanMagic;
    auto* bytes = reinterpret_cast<unsigned char*>(&request);
    // Past the magic: a slot without it is a broken ring, which has its own test.
    for (std::uint64_t flips = random() % 4; flips > 0; --flips) {
      bytes[sizeof(request.magic) + random() % (sizeof(request) - sizeof(request.magic))] =
          static_cast<unsigned char>(random());
    }
    ASSERT_EQ(raw_->submit(request), ring::Push::Done);
    const std::optional<ring::Completion> completion = raw_->next_completion(milliseconds(10000));
    ASSERT_TRUE(completion.has_value()) << "operation " << i;
    ++answered;
    if (request.magic == ring::kPlanMagic) continue;
    // A random member or a skipped seq spends nothing, or revokes the communicator: make another
    // one then.
    if (request.member == member_.bits() && request.seq == seq_) {
      ++seq_;
    } else if (request.seq > seq_ && request.member == member_.bits()) {
      const Result<MemberId> next = raw_->create_lone_communicator();
      ASSERT_TRUE(next.ok()) << next.error().to_string();
      member_ = *next;
      seq_ = 0;
    }
  }
  EXPECT_EQ(answered, operations);
}

}  // namespace
}  // namespace arcomm::support

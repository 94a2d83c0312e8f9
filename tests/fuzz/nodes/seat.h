// A rank's process as a worker knows it: a session with rings, a buffer, and calls of which each is
// answered once, rightly where it must succeed.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/exec/worker/control_requests.h"
#include "proto/ring/consumer.h"
#include "proto/ring/doorbell.h"
#include "proto/ring/producer.h"
#include "proto/ring/segment.h"

namespace arcomm::fuzz {

inline constexpr std::uint64_t kMostCalls = 8;         // of a rank in its communicator
inline constexpr std::uint64_t kMostElements = 40000;  // of a call
inline constexpr std::uint64_t kPlaceBytes = kMostElements * sizeof(float);

inline void check(bool holds) {
  if (!holds) __builtin_trap();
}

// Elements of a call, by which one it is: with the offer, and in chunks.
inline std::uint64_t elements_of(std::uint64_t seq) {
  constexpr std::uint64_t kCounts[] = {5, 3000, kMostElements};
  return kCounts[seq % std::size(kCounts)];
}
inline float element_of(std::size_t rank, std::uint64_t seq, std::uint64_t at) {
  return static_cast<float>((rank + 1) * (at % 1000 + seq + 1));  // sums are exact
}

class Seat {
 public:
  Seat(ControlRequests& control, SessionId id, std::size_t rank) : id_(id), rank_(rank) {
    ring::Segment segment = ring::Segment::create(ring::kMinSlots, id).value();
    mine_.emplace(ring::Segment::open(duplicate(segment.fd())).value());
    requests_.emplace(mine_->requests());
    completions_.emplace(mine_->completions());
    check(control
              .open_session({.id = id,
                             .peer = {.pid = 100, .uid = 1000, .gid = 1000},
                             .process_name = "client",
                             .segment = std::move(segment),
                             .doorbell = ring::EventDoorbell::create().value(),
                             .limits = {}},
                            now_ns())
              .ok());
    UniqueFd memory(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const std::size_t bytes = 2 * kMostCalls * kPlaceBytes;
    check(::ftruncate(memory.get(), static_cast<off_t>(bytes)) == 0 &&
          ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    void* const mapped =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    check(mapped != MAP_FAILED);
    memory_ = {static_cast<std::byte*>(mapped), bytes};
    BufferSpec spec{.memory = std::move(memory), .handle = {.length_bytes = bytes}};
    buffer_ = control.add_buffer(id, spec).value();
  }
  ~Seat() { ::munmap(memory_.data(), memory_.size()); }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  SessionId id() const { return id_; }
  void sit(MemberId member) { member_ = member; }
  std::optional<MemberId> member() const { return member_; }
  std::uint64_t called() const { return called_; }
  bool may_call() const { return member_ && called_ < kMostCalls; }
  std::uint64_t open_calls() const { return called_ - answered_; }

  void call() {
    const std::uint64_t seq = called_++, count = elements_of(seq);
    float* const send = place(seq, 0);
    for (std::uint64_t i = 0; i < count; ++i) send[i] = element_of(rank_, seq, i);
    ring::WorkRequest request;
    request.dtype = static_cast<std::uint8_t>(DType::Float32);
    request.op = static_cast<std::uint8_t>(ReduceOp::Sum);
    request.member = member_->bits();
    request.seq = seq;
    request.ticket = seq;
    request.send_buffer = request.recv_buffer = buffer_.bits();
    request.send_offset_bytes = offset(seq, 0);
    request.recv_offset_bytes = offset(seq, 1);
    request.send_count = request.recv_count = count;
    request.submitted_ns = now_ns();
    check(requests_->push(request) == ring::Push::Done);
  }
  // Each call is answered once. must_succeed: rightly, with the sum over so many ranks.
  void hear(bool must_succeed, std::size_t ranks) {
    ring::Completion completion;
    while (completions_->pop(completion) == ring::Pop::Done) {
      const std::uint64_t seq = completion.ticket;
      check(seq < called_ && !heard_[seq]);
      heard_[seq] = true;
      ++answered_;
      if (!must_succeed) continue;
      check(completion.code == static_cast<std::uint8_t>(ErrorCode::Ok));
      const float* const sum = place(seq, 1);
      for (std::uint64_t i = 0; i < elements_of(seq); ++i) {
        float expected = 0;
        for (std::size_t rank = 0; rank < ranks; ++rank) expected += element_of(rank, seq, i);
        check(sum[i] == expected);
      }
    }
  }

 private:
  static std::uint64_t offset(std::uint64_t seq, std::uint64_t half) {
    return (2 * seq + half) * kPlaceBytes;
  }
  float* place(std::uint64_t seq, std::uint64_t half) {
    return reinterpret_cast<float*>(memory_.data() + offset(seq, half));
  }

  const SessionId id_;
  const std::size_t rank_;
  std::optional<ring::Segment> mine_;
  std::optional<ring::Producer<ring::WorkRequest>> requests_;
  std::optional<ring::Consumer<ring::Completion>> completions_;
  std::span<std::byte> memory_;
  BufferId buffer_;
  std::optional<MemberId> member_;
  std::uint64_t called_ = 0, answered_ = 0;
  std::array<bool, kMostCalls> heard_{};
};

}  // namespace arcomm::fuzz

// What the in-stream kernels do, on memory of the host: numbers, agreement, sums of float32 and the
// words by which they tell of a failure. Thread: the worker's.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "daemon/exec/clock.h"
#include "proto/gpu/device_mailbox.h"
#include "proto/gpu/in_stream_call.h"
#include "proto/status.h"
#include "tests/unit/daemon/exec/gpu/fakes/fake_words.h"

namespace arcomm::test {

// What a rank has handed to its peers: they need nothing else of it.
struct InStreamPush {
  bool is_there = false;
  std::uint32_t number = 0;
  std::uint32_t what = 0, count_and_identity = 0;
  std::vector<float> data;
};
// By exchange, and number modulo 2: no peer is further behind.
using InStreamPushes = std::map<const void*, std::array<InStreamPush, 2>>;

// One rank's part of one operation.
class FakeInStream {
 public:
  FakeInStream(InStreamPushes& pushes, const InStreamCall& call, std::uint64_t element_bytes)
      : pushes_(pushes), call_(call), floats_(call.count * element_bytes / sizeof(float)) {}

  // What it gets done by itself; true: it has ended.
  bool run() {
    if (!begun_) begin();
    if (load_word(call_.mailbox->failed) != 0) return true;
    if (const std::uint64_t closed = load_word(call_.mailbox->closed); closed != 0)
      return fail(done_from(closed));
    std::vector<const float*> in;
    for (std::uint32_t rank = 0; rank < call_.ranks; ++rank) {
      const InStreamPush& push = pushes_[call_.exchange[rank]][number_ % 2];
      if (!push.is_there || push.number != number_) {
        return now_ns() - since_ns_ >= call_.timeout_ns &&
               fail(ErrorCode::DeadlineExceeded, Reason::Timeout, rank);
      }
      if (push.what != call_.what || push.count_and_identity != call_.count_and_identity) {
        const bool same = is_same_but_for_identity(push.what, push.count_and_identity, call_.what,
                                                   call_.count_and_identity);
        return fail(ErrorCode::FailedPrecondition, same ? Reason::Reordered : Reason::Mismatch,
                    rank);
      }
      in.push_back(push.data.data());
    }
    sum_floats(in, {static_cast<float*>(call_.recv)}, floats_);
    return true;
  }

 private:
  void begin() {
    begun_ = true;
    since_ns_ = now_ns();
    number_ = ++call_.exchange[call_.rank]->blocks[0].taken;
    __atomic_store_n(&call_.doorbells->in_stream_begun, number_, __ATOMIC_RELEASE);
    if (load_word(call_.mailbox->failed) != 0 || load_word(call_.mailbox->closed) != 0) return;
    const auto* const send = static_cast<const float*>(call_.send);
    pushes_[call_.exchange[call_.rank]][number_ % 2] = {
        true, number_, call_.what, call_.count_and_identity, {send, send + floats_}};
  }
  bool fail(ErrorCode code, Reason reason, std::uint32_t culprit) {
    return fail({.number = number_,
                 .code = static_cast<std::uint8_t>(code),
                 .reason = static_cast<std::uint8_t>(reason),
                 .culprit_rank = static_cast<std::int16_t>(culprit)});
  }
  bool fail(Done why) {
    store_word(call_.mailbox->failed, to_word(why));
    store_word(call_.doorbells->in_stream_failed, to_word(why));
    return true;
  }

  InStreamPushes& pushes_;
  const InStreamCall call_;
  const std::uint64_t floats_;  // bytes of another type are floats here too
  std::uint32_t number_ = 0;
  bool begun_ = false;
  std::uint64_t since_ns_ = 0;
};

}  // namespace arcomm::test

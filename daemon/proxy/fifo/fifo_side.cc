#include "daemon/proxy/fifo/fifo_side.h"

#include <utility>

#include "daemon/proxy/fifo/fifo_words.h"
#include "daemon/proxy/fifo/receive_side.h"
#include "daemon/proxy/fifo/send_side.h"

namespace arcomm::proxy {

std::unique_ptr<FifoSide> FifoSide::create(FifoConfig config) {
  if (config.direction == FifoDirection::Send) return std::make_unique<SendSide>(std::move(config));
  return std::make_unique<ReceiveSide>(std::move(config));
}

FifoSide::FifoSide(FifoConfig config) : config_(std::move(config)) {}

FifoSide::~FifoSide() {
  if (!uses_pool()) return;
  for (std::uint64_t number = 0; number < kFifoSteps; ++number) {
    if (holds_[number]) config_.memory.pool->give(steps_[number].offset);
  }
  config_.memory.pool->leave();
}

bool FifoSide::progress(std::uint64_t now_ns) {
  if (failure_) return let_go();
  if (is_idle_ && !config_.orders->has_new() && ++rounds_left_out_ % kIdleRounds != 0) return false;
  const bool moved = advance();
  if (!failure_) is_open_ = config_.orders->settle(ended());
  is_idle_ = !moved && !is_open_;
  if (!failure_) hear_kernel();
  if (!failure_) watch_deadline(now_ns);
  return moved || failure_.has_value();
}

void FifoSide::end_early() {
  if (failure_ || is_open_ || config_.orders->has_new()) return;
  store_release(fifo().aborted,
                to_word(Done{.number = static_cast<std::uint32_t>(ended()),
                             .code = static_cast<std::uint8_t>(ErrorCode::Cancelled),
                             .culprit_rank = static_cast<std::int16_t>(config_.peer)}));
}

void FifoSide::forget_early_kernel() {
  if (failure_) return;
  forget_early();
  store_release(fifo().aborted, 0);
}

void FifoSide::hear_kernel() {
  const std::uint64_t word = load_acquire(fifo().failed);
  if (word == 0) return;
  // Any bits may be in it: each field is brought into its range.
  const Done told = done_from(word);
  ErrorCode code = error_code_from(told.code);
  if (code == ErrorCode::Ok) code = ErrorCode::Unknown;
  fail_at(ended(), error(code, reason_from(told.reason), "the kernel gave up at step ", told.number,
                         " of its lane (modulo 2^32), waiting for node ", told.culprit_rank));
}

void FifoSide::watch_deadline(std::uint64_t now_ns) {
  if (!is_open_ || now_ns < deadline_ns()) return;
  fail_at(ended(),
          error(ErrorCode::DeadlineExceeded, Reason::Timeout, "the deadline passed, waiting for ",
                waits_for(), " (", ended(), " of ", config_.orders->until(), " steps are done)"));
}

void FifoSide::fail_at(std::uint64_t number, const Error& why) {
  const bool sends = config_.direction == FifoDirection::Send;
  Error told =
      error(why.code, why.reason, sends ? "sending to " : "receiving from ", config_.peer_name,
            ", lane ", config_.lane, ", step ", number, ": ", why.message);
  told.rank = why.rank;
  fail(told);
}

void FifoSide::fail(const Error& why) {
  if (failure_) return;
  failure_ = why;
  is_open_ = false;
  // Release, like all words, though the kernel that reads it only leaves.
  store_release(fifo().aborted,
                to_word(Done{.number = static_cast<std::uint32_t>(ended()),
                             .code = static_cast<std::uint8_t>(why.code),
                             .reason = static_cast<std::uint8_t>(why.reason),
                             .culprit_rank = static_cast<std::int16_t>(config_.peer)}));
}

// Whatever the wire still has is taken back, in order. The pool keeps the slots until this is
// destroyed: a kernel that has not seen the word may still write into them.
bool FifoSide::let_go() {
  if (is_quiet()) return false;
  const Step& first = step(first_in_flight() + cancelled_);
  if (config_.wire->cancel(first.transfer) != net::Progress::Done) return false;
  ++cancelled_;
  return true;
}

bool FifoSide::take_slot(std::uint64_t number) {
  SharedSlots& pool = *config_.memory.pool;
  if (slots_held_ >= pool.share()) return false;
  const auto offset = pool.take();
  if (!offset) return false;
  step(number).offset = *offset;
  holds_[slot_of(number)] = true;
  ++slots_held_;
  return true;
}

void FifoSide::give_slot(std::uint64_t number) {
  config_.memory.pool->give(step(number).offset);
  holds_[slot_of(number)] = false;
  --slots_held_;
}

void FifoSide::set_doorbell(std::uint32_t asleep) {
  std::atomic_ref(fifo().doorbell).store(asleep, std::memory_order_relaxed);
}

}  // namespace arcomm::proxy

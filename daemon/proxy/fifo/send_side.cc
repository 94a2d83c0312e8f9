#include "daemon/proxy/fifo/send_side.h"

#include <utility>

#include "daemon/proxy/fifo/fifo_words.h"

namespace arcomm::proxy {

SendSide::SendSide(FifoConfig config) : FifoSide(std::move(config)) {
  while (post()) {
  }
}

bool SendSide::advance() {
  // Last phase first: a slot that comes free now is posted in the same visit.
  bool moved = finish();
  moved |= transmit();
  moved |= fill();
  moved |= post();
  return moved;
}

bool SendSide::post() {
  if (posted_ == done_ + kFifoSteps) return false;
  if (uses_pool()) {
    // The pool's slots are for steps that will be used.
    if (posted_ >= config().orders->until() || !take_slot(posted_)) return false;
    FifoEntry& entry = slot(posted_).of_proxy;
    store_entry(entry, {.size_word = 0,
                        .sequence = posted_ + 1,
                        .offset = step(posted_).offset,
                        .address = 0,
                        .mode = SlotMode::Offset});
    store_release(entry.size_word,
                  to_word(SizeWord{.step = posted_, .bytes = config().memory.most_bytes}));
  }
  ++posted_;
  // Whoever sees it may write the slot: what the wire read of the lap before is behind it, and so
  // is the pool's offset.
  store_release(fifo().granted, posted_);
  return true;
}

bool SendSide::fill() {
  if (filled_ == posted_ || filled_ >= config().orders->until()) return false;
  FifoEntry& entry = slot(filled_).of_kernel;
  const std::uint64_t word = load_acquire(entry.size_word);
  if (!is_of_step(word, filled_)) {
    if (!is_of_lap_before(word, filled_)) {
      fail_at(filled_, error(ErrorCode::DataLoss, Reason::Corrupt, "the kernel's size word is ",
                             word, ", of neither this step nor the one before in its slot"));
    }
    return false;
  }
  const FifoEntry copy = copy_entry(entry, word);
  const auto bytes = config().memory.checked(copy, filled_, step(filled_).offset);
  if (!bytes) {
    fail_at(filled_, bytes.error());
    return false;
  }
  // Stored before the size word, by the same release.
  const std::uint64_t told = load_acquire(fifo().filled);
  if (told <= filled_ || told > posted_) {
    fail_at(filled_, error(ErrorCode::DataLoss, Reason::Corrupt, "the kernel says that it filled ",
                           told, " steps of ", posted_, " that it was granted"));
    return false;
  }
  step(filled_).bytes = *bytes;
  ++filled_;
  return true;
}

bool SendSide::transmit() {
  if (transmitted_ == filled_) return false;
  Step& next = step(transmitted_);
  switch (config().wire->send(config().lane, transmitted_, next.bytes, next.transfer)) {
    case net::Progress::Done:
      ++transmitted_;
      return true;
    case net::Progress::Again:
      return false;
    case net::Progress::Failed:
      break;
  }
  fail_at(transmitted_, config().wire->error());
  return true;
}

bool SendSide::finish() {
  if (done_ == transmitted_) return false;
  std::uint32_t bytes = 0;
  switch (config().wire->test(step(done_).transfer, bytes)) {
    case net::Progress::Done:
      if (uses_pool()) give_slot(done_);
      ++done_;
      return true;
    case net::Progress::Again:
      return false;
    case net::Progress::Failed:
      break;
  }
  fail_at(done_, config().wire->error());
  return true;
}

void SendSide::forget_early() {
  for (std::uint64_t number = filled_; number < posted_; ++number) {
    std::uint64_t& word = slot(number).of_kernel.size_word;
    // As it was: the number of the lap before, or none.
    if (is_of_step(load_acquire(word), number))
      store_release(word, number < kFifoSteps
                              ? 0
                              : to_word(SizeWord{.step = number - kFifoSteps, .bytes = 0}));
  }
  store_release(fifo().filled, filled_);
}

std::string SendSide::waits_for() const {
  if (done_ != transmitted_) return "the wire to deliver";
  if (transmitted_ != filled_) return "the wire to take the next step";
  if (uses_pool() && filled_ == posted_) return "staging memory";
  return "this node's kernel to stage";
}

}  // namespace arcomm::proxy

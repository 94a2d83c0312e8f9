#include "daemon/proxy/fifo/receive_side.h"

#include <utility>

#include "daemon/proxy/fifo/fifo_words.h"

namespace arcomm::proxy {

ReceiveSide::ReceiveSide(FifoConfig config) : FifoSide(std::move(config)) {
  // The kernel's word, before there is a kernel: all slots are free.
  if (!points()) granted_ = kFifoSteps;
  store_release(fifo().granted, granted_);
}

bool ReceiveSide::advance() {
  bool moved = finish();
  moved |= transmit();
  moved |= receive();
  moved |= post();
  return moved;
}

bool ReceiveSide::post() {
  if (posted_ >= granted_) return false;
  if (!room_is_found_ && !find_room(posted_)) return false;
  room_is_found_ = true;
  Step& next = step(posted_);
  switch (config().wire->receive(config().lane, posted_, next.bytes, next.transfer)) {
    case net::Progress::Done:
      ++posted_;
      room_is_found_ = false;
      return true;
    case net::Progress::Again:
      return false;
    case net::Progress::Failed:
      break;
  }
  fail_at(posted_, config().wire->error());
  return true;
}

bool ReceiveSide::find_room(std::uint64_t number) {
  if (uses_pool() && (number >= config().orders->until() || !take_slot(number))) return false;
  if (!points()) {
    step(number).bytes = config().memory.of_step(number, step(number).offset);
    return true;
  }
  FifoEntry& entry = slot(number).of_kernel;
  const FifoEntry copy = copy_entry(entry, load_acquire(entry.size_word));
  if (!is_of_step(copy.size_word, number)) {
    fail_at(number, error(ErrorCode::DataLoss, Reason::Corrupt, "the kernel granted room by entry ",
                          copy.size_word, ", which is of another step"));
    return false;
  }
  const auto room = config().memory.checked(copy, number, 0);
  if (!room) {
    fail_at(number, room.error());
    return false;
  }
  step(number).bytes = *room;
  return true;
}

bool ReceiveSide::receive() {
  if (received_ == posted_) return false;
  std::uint32_t bytes = 0;
  Step& next = step(received_);
  switch (config().wire->test(next.transfer, bytes)) {
    case net::Progress::Done:
      break;
    case net::Progress::Again:
      return false;
    case net::Progress::Failed:
      fail_at(received_, config().wire->error());
      return true;
  }
  if (bytes == 0 || bytes > next.bytes.size()) {
    ++received_;  // the wire is done with it
    fail_at(received_ - 1, error(ErrorCode::DataLoss, Reason::Corrupt, bytes,
                                 " bytes came where there was room for ", next.bytes.size()));
    return true;
  }
  next.bytes = next.bytes.first(bytes);
  ++received_;
  return true;
}

bool ReceiveSide::transmit() {
  if (transmitted_ == received_ || transmitted_ >= config().orders->until()) return false;
  const Step& next = step(transmitted_);
  switch (config().wire->flush(config().lane, next.bytes)) {
    case net::Progress::Done:
      break;
    case net::Progress::Again:
      return false;
    case net::Progress::Failed:
      fail_at(transmitted_, config().wire->error());
      return true;
  }
  FifoEntry& entry = slot(transmitted_).of_proxy;
  store_entry(entry, {.size_word = 0,
                      .sequence = transmitted_ + 1,
                      .offset = points() ? 0 : config().memory.offset_of(transmitted_, next.offset),
                      .address = points() ? reinterpret_cast<std::uintptr_t>(next.bytes.data()) : 0,
                      .mode = config().memory.mode});
  store_release(fifo().filled, transmitted_ + 1);
  // Last: behind it are the bytes, the entry and the count.
  store_release(entry.size_word,
                to_word(SizeWord{.step = transmitted_,
                                 .bytes = static_cast<std::uint32_t>(next.bytes.size())}));
  ++transmitted_;
  return true;
}

// What the kernel has read is behind its grant: the wire may write there again.
bool ReceiveSide::finish() {
  const std::uint64_t granted = load_acquire(fifo().granted);
  if (granted == granted_) return false;
  if (granted < granted_ || granted > transmitted_ + kFifoSteps) {
    fail_at(transmitted_,
            error(ErrorCode::DataLoss, Reason::Corrupt, "the kernel granted ", granted,
                  " steps, after ", granted_, " and with ", transmitted_, " told"));
    return true;
  }
  granted_ = granted;
  const std::uint64_t consumed = granted < kFifoSteps ? 0 : granted - kFifoSteps;
  for (; done_ < consumed; ++done_) {
    if (uses_pool()) give_slot(done_);
  }
  return true;
}

std::string ReceiveSide::waits_for() const {
  if (transmitted_ != received_) return "the wire to flush";
  if (received_ != posted_) return "the peer's data";
  if (posted_ < granted_) return uses_pool() ? "staging memory" : "the wire to take its room";
  return "this node's kernel to consume";
}

}  // namespace arcomm::proxy

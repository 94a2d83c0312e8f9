// The kernel's side of a FIFO, on the CPU: what kernels/device/device_fifo.cuh does, call by call,
// so that the protocol runs where sanitizers and a deterministic scheduler can see it. Thread: that
// of the block; the other side's is the proxy's.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>

#include "daemon/proxy/fifo/fifo_words.h"
#include "kernels/network/network_call.h"
#include "proto/status.h"

namespace arcomm::proxy {

// What a block may spend on waiting, over all its waits. The twin of WaitBudget and FifoWatch.
class HostBudget {
 public:
  HostBudget(std::uint64_t timeout_ns, const std::function<std::uint64_t()>& clock)
      : timeout_ns_(timeout_ns), clock_(&clock) {}

  // After a look in vain; false: give up. Then the FIFO says why, unless the proxy said so first.
  bool goes_on(const FifoPort& port, std::uint64_t step) {
    DeviceFifo& fifo = *port.fifo;
    if (const std::uint64_t word = load_acquire(fifo.aborted); word != 0) {
      verdict_ = error_code_from(done_from(word).code);
      return false;
    }
    const std::uint64_t now = (*clock_)();
    if (since_ == 0) since_ = now;
    const std::uint64_t most = load_acquire(fifo.most_wait_ns);
    if (now - since_ < (timeout_ns_ < most ? timeout_ns_ : most)) return true;
    fail(port, step, ErrorCode::DeadlineExceeded, Reason::Timeout);
    return false;
  }
  void fail(const FifoPort& port, std::uint64_t step, ErrorCode code, Reason reason) {
    verdict_ = code;
    store_release(port.fifo->failed,
                  to_word(Done{.number = static_cast<std::uint32_t>(step),
                               .code = static_cast<std::uint8_t>(code),
                               .reason = static_cast<std::uint8_t>(reason),
                               .culprit_rank = static_cast<std::int16_t>(port.peer)}));
  }
  ErrorCode verdict() const { return verdict_; }

 private:
  std::uint64_t timeout_ns_;
  const std::function<std::uint64_t()>* clock_;
  std::uint64_t since_ = 0;
  ErrorCode verdict_ = ErrorCode::Ok;
};

class HostSendFifo {
 public:
  explicit HostSendFifo(const FifoPort& port) : port_(&port) {}

  bool has_room(std::uint64_t step) const { return load_acquire(port_->fifo->granted) > step; }
  // What the step's memory was read for has happened.
  bool is_sent(std::uint64_t step) const { return has_room(step + kFifoSteps); }
  // The bytes that another block stages for the step may be overwritten where they came from:
  // copied into the slot, or, in Pointer mode, sent.
  bool is_taken(std::uint64_t step) const {
    if (port_->mode == SlotMode::Pointer) return is_sent(step);
    return is_of_step_or_later(load_acquire(port_->fifo->slots[slot_of(step)].of_kernel.size_word),
                               step);
  }
  // Behind has_room(): where to stage; nullptr: the grant is not of this step.
  unsigned char* place(std::uint64_t step) const {
    const std::uint64_t offset = offset_of(step);
    return offset <= port_->memory_bytes && port_->memory_bytes - offset >= port_->most_bytes
               ? port_->memory + offset
               : nullptr;
  }
  // Behind all that was staged. `from`: Pointer mode, where the bytes lie.
  void publish(std::uint64_t step, std::uint32_t bytes, const void* from) const {
    const bool points = port_->mode == SlotMode::Pointer;
    FifoEntry& entry = port_->fifo->slots[slot_of(step)].of_kernel;
    store_entry(entry, {.size_word = 0,
                        .sequence = step + 1,
                        .offset = points ? 0 : offset_of(step),
                        .address = points ? reinterpret_cast<std::uintptr_t>(from) : 0,
                        .mode = port_->mode});
    std::atomic_ref(port_->fifo->filled).store(step + 1, std::memory_order_relaxed);
    // Release: bytes, entry and count are there before the number.
    store_release(entry.size_word, to_word(SizeWord{.step = step, .bytes = bytes}));
  }
  const FifoPort& port() const { return *port_; }

 private:
  std::uint64_t offset_of(std::uint64_t step) const {
    if (port_->mode != SlotMode::Offset) return std::uint64_t{slot_of(step)} * port_->most_bytes;
    // Behind the acquire of `granted`.
    FifoEntry& entry = port_->fifo->slots[slot_of(step)].of_proxy;
    return entry.sequence == step + 1 ? entry.offset : ~std::uint64_t{0};
  }

  const FifoPort* port_;
};

class HostReceiveFifo {
 public:
  explicit HostReceiveFifo(const FifoPort& port) : port_(&port) {}

  bool has_come(std::uint64_t step) const {
    return is_of_step(load_acquire(entry_of(step).size_word), step);
  }
  // Behind has_come(): the bytes, or none where they are not of that size or lie elsewhere.
  const unsigned char* data(std::uint64_t step, std::uint32_t bytes) const {
    const FifoEntry& entry = entry_of(step);
    if (bytes_of(entry.size_word) != bytes || entry.sequence != step + 1) return nullptr;
    if (port_->mode == SlotMode::Pointer) return landing(step);
    return entry.offset <= port_->memory_bytes && port_->memory_bytes - entry.offset >= bytes
               ? port_->memory + entry.offset
               : nullptr;
  }
  // The step's bytes are not read any more: step + 8 may come. `last`: one past the operation's.
  void consumed(std::uint64_t step, std::uint64_t last) const {
    if (port_->mode != SlotMode::Pointer) {
      store_release(port_->fifo->granted, step + 1 + kFifoSteps);
    } else if (step + kFifoSteps < last) {
      offer(step + kFifoSteps);
    }
  }
  // At the begin of an operation: Pointer mode says where its first steps are to go.
  void begin(std::uint64_t first, std::uint64_t last) const {
    if (port_->mode != SlotMode::Pointer) return;
    for (std::uint64_t step = first; step < last && step < first + kFifoSteps; ++step) offer(step);
  }
  const FifoPort& port() const { return *port_; }

 private:
  FifoEntry& entry_of(std::uint64_t step) const {
    return port_->fifo->slots[slot_of(step)].of_proxy;
  }
  unsigned char* landing(std::uint64_t step) const {
    return port_->memory + std::uint64_t{slot_of(step)} * port_->most_bytes;
  }
  void offer(std::uint64_t step) const {
    FifoEntry& entry = port_->fifo->slots[slot_of(step)].of_kernel;
    store_entry(entry, {.size_word = 0,
                        .sequence = step + 1,
                        .offset = 0,
                        .address = reinterpret_cast<std::uintptr_t>(landing(step)),
                        .mode = SlotMode::Pointer});
    store_release(entry.size_word, to_word(SizeWord{.step = step, .bytes = port_->most_bytes}));
    store_release(port_->fifo->granted, step + 1);
  }

  const FifoPort* port_;
};

}  // namespace arcomm::proxy

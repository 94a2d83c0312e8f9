// A kernel's side of a FIFO between it and the CPU proxy (proto/gpu/device_fifo.h, which draws the
// orders and their partners). Its twin on the CPU, call by call, is daemon/proxy/host/host_fifo.h:
// what is changed here is changed there, where a schedule fuzzer sees it.
//
// One thread of the block waits and publishes; the block's barriers put what all of its threads
// wrote or read on the right side: before the release of the one, behind its acquire.
#pragma once

#include <cstdint>

#include "kernels/device/ptx.cuh"
#include "kernels/device/wait_budget.cuh"
#include "kernels/network/network_call.h"
#include "proto/status.h"

namespace arcomm::device {

// What a wait of a block is for.
struct FifoWait {
  const FifoPort* port;
  std::uint64_t step;
};

// Ends waits when the proxy says so, and at the deadline; then the FIFO says for whom it was.
struct FifoWatch {
  const FifoWait* wait;
  std::uint64_t timeout_ns;
  std::uint64_t* verdict;  // this thread's

  __device__ __forceinline__ void grow(std::uint64_t more_ns) { timeout_ns += more_ns; }
  __device__ __forceinline__ bool goes_on(std::uint64_t& since, std::uint32_t) const {
    DeviceFifo* fifo = wait->port->fifo;
    // Over PCIe each look takes a microsecond: only one wait in 128 gets here.
    if (const std::uint64_t word = load_acquire(&fifo->aborted); word != 0) {
      *verdict = word;
      return false;
    }
    const std::uint64_t now = global_nanoseconds();
    if (since == 0) since = now;
    const std::uint64_t most = load_relaxed(&fifo->most_wait_ns);
    if (now - since < (timeout_ns < most ? timeout_ns : most)) return true;
    fail(ErrorCode::DeadlineExceeded, Reason::Timeout);
    return false;
  }
  __device__ __forceinline__ void fail(ErrorCode code, Reason reason) const {
    *verdict = to_word(Done{.number = static_cast<std::uint32_t>(wait->step),
                            .code = static_cast<std::uint8_t>(code),
                            .reason = static_cast<std::uint8_t>(reason),
                            .culprit_rank = static_cast<std::int16_t>(wait->port->peer)});
    store_release(&wait->port->fifo->failed, *verdict);
  }
};

// All but the size word, each whole; the caller releases that.
__device__ __forceinline__ void store_entry(FifoEntry* to, std::uint64_t sequence,
                                            std::uint64_t offset, std::uint64_t address,
                                            SlotMode mode) {
  store_relaxed(&to->sequence, sequence);
  store_relaxed(&to->offset, offset);
  store_relaxed(&to->address, address);
  store_relaxed(reinterpret_cast<std::uint32_t*>(&to->mode), static_cast<std::uint32_t>(mode));
}

class DeviceSendFifo {
 public:
  __device__ __forceinline__ explicit DeviceSendFifo(const FifoPort& port) : port_(&port) {}

  __device__ __forceinline__ bool has_room(std::uint64_t step) const {
    return load_acquire(&port_->fifo->granted) > step;
  }
  // What the step's memory was read for has happened.
  __device__ __forceinline__ bool is_sent(std::uint64_t step) const {
    return has_room(step + kFifoSteps);
  }
  // The bytes that another block of this kernel stages for the step may be overwritten where they
  // came from: copied into the slot, or, in Pointer mode, sent. That block's barrier and release of
  // the size word are behind its reads.
  __device__ __forceinline__ bool is_taken(std::uint64_t step) const {
    if (port_->mode == SlotMode::Pointer) return is_sent(step);
    return is_of_step_or_later(load_acquire(&port_->fifo->slots[slot_of(step)].of_kernel.size_word),
                               step);
  }
  // Behind has_room(): where to stage; nullptr: the grant is not of this step.
  __device__ __forceinline__ unsigned char* place(std::uint64_t step) const {
    const std::uint64_t offset = offset_of(step);
    return offset <= port_->memory_bytes && port_->memory_bytes - offset >= port_->most_bytes
               ? port_->memory + offset
               : nullptr;
  }
  // Behind a barrier that follows what was staged. `from`: Pointer mode, where the bytes lie.
  __device__ __forceinline__ void publish(std::uint64_t step, std::uint32_t bytes,
                                          const void* from) const {
    const bool points = port_->mode == SlotMode::Pointer;
    FifoEntry* entry = &port_->fifo->slots[slot_of(step)].of_kernel;
    store_entry(entry, step + 1, points ? 0 : offset_of(step),
                points ? reinterpret_cast<std::uintptr_t>(from) : 0, port_->mode);
    store_relaxed(&port_->fifo->filled, step + 1);
    // Release: bytes, entry and count are there before the number.
    store_release(&entry->size_word, to_word(SizeWord{.step = step, .bytes = bytes}));
  }
  __device__ __forceinline__ const FifoPort& port() const { return *port_; }

 private:
  __device__ __forceinline__ std::uint64_t offset_of(std::uint64_t step) const {
    if (port_->mode != SlotMode::Offset) return std::uint64_t{slot_of(step)} * port_->most_bytes;
    // Behind the acquire of `granted`.
    const FifoEntry* entry = &port_->fifo->slots[slot_of(step)].of_proxy;
    return load_relaxed(&entry->sequence) == step + 1 ? load_relaxed(&entry->offset)
                                                      : ~std::uint64_t{0};
  }

  const FifoPort* port_;
};

class DeviceReceiveFifo {
 public:
  __device__ __forceinline__ explicit DeviceReceiveFifo(const FifoPort& port) : port_(&port) {}

  // One look at one line over PCIe tells both, that it has come and what.
  __device__ __forceinline__ bool has_come(std::uint64_t step) const {
    return is_of_step(load_acquire(&entry_of(step)->size_word), step);
  }
  // Behind has_come(): the bytes; nullptr: they are not of that size, or lie elsewhere.
  __device__ __forceinline__ const unsigned char* data(std::uint64_t step,
                                                       std::uint32_t bytes) const {
    const FifoEntry* entry = entry_of(step);
    // Each load is a microsecond over PCIe: all are under way together.
    const std::uint64_t word = load_relaxed(&entry->size_word);
    const std::uint64_t sequence = load_relaxed(&entry->sequence);
    const std::uint64_t offset = load_relaxed(&entry->offset);
    if (bytes_of(word) != bytes || sequence != step + 1) return nullptr;
    if (port_->mode == SlotMode::Pointer) return landing(step);
    return offset <= port_->memory_bytes && port_->memory_bytes - offset >= bytes
               ? port_->memory + offset
               : nullptr;
  }
  // Behind a barrier that follows the last read of the step's bytes: step + 8 may come.
  __device__ __forceinline__ void consumed(std::uint64_t step, std::uint64_t last) const {
    if (port_->mode != SlotMode::Pointer) {
      store_release(&port_->fifo->granted, step + 1 + kFifoSteps);
    } else if (step + kFifoSteps < last) {
      offer(step + kFifoSteps);
    }
  }
  // At the begin of an operation: Pointer mode says where its first steps are to go.
  __device__ __forceinline__ void begin(std::uint64_t first, std::uint64_t last) const {
    if (port_->mode != SlotMode::Pointer) return;
    for (std::uint64_t step = first; step < last && step < first + kFifoSteps; ++step) offer(step);
  }
  __device__ __forceinline__ const FifoPort& port() const { return *port_; }

 private:
  __device__ __forceinline__ FifoEntry* entry_of(std::uint64_t step) const {
    return &port_->fifo->slots[slot_of(step)].of_proxy;
  }
  __device__ __forceinline__ unsigned char* landing(std::uint64_t step) const {
    return port_->memory + std::uint64_t{slot_of(step)} * port_->most_bytes;
  }
  __device__ __forceinline__ void offer(std::uint64_t step) const {
    FifoEntry* entry = &port_->fifo->slots[slot_of(step)].of_kernel;
    store_entry(entry, step + 1, 0, reinterpret_cast<std::uintptr_t>(landing(step)),
                SlotMode::Pointer);
    store_release(&entry->size_word, to_word(SizeWord{.step = step, .bytes = port_->most_bytes}));
    store_release(&port_->fifo->granted, step + 1);
  }

  const FifoPort* port_;
};

}  // namespace arcomm::device

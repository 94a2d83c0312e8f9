// The words between one kernel and the CPU proxy that moves its chunks over the network: a queue of
// eight steps in host memory that the GPU reaches (pinned). One per lane, peer and direction: a
// Send FIFO is filled by one block of the kernel and emptied by the proxy, a Receive FIFO the other
// way round. Bytes only; drawn, with the phases of both sides, in daemon/proxy/README.md.
//
// Steps are counted over the FIFO's life, in 64 bits, and never start over; step s uses slot s % 8.
//
//   filler                                    emptier
//   waits until granted > s
//   data, entry, filled        (plain)
//   size word                  (release) -->  size word of its slot says s (acquire)
//                                             entry, data (plain), each once
//   granted > s + 8 (acquire)        <------  granted = s + 9 (release): the slot is free again
//
// Order. Every word has one writer, since the atomics of a GPU on host memory are none towards the
// CPU over PCIe: so two sides that both may fail have a word each. Scope is the system's:
// st.release.sys and ld.acquire.sys on the GPU, std::atomic_ref with the same names on the CPU;
// both are cumulative, so what the block's other threads wrote before its barrier is behind its one
// release too. The size word is stored last and carries the step's number, so whoever reads the
// number of the step that it waits for has all else of the slot, in one look at one line: of what
// an earlier lap left, the number differs, and nothing needs to be wiped. `filled` is for checks
// and for people: a waiter looks at the size word.
//
// Trust: the daemon makes the memory and lends it to nobody, but a kernel's stray store may reach
// it. The proxy copies what a kernel wrote once, checks the copy (daemon/proxy/fifo/slot_memory.h),
// and keeps its own counts elsewhere. A number that cannot be ends the FIFO, and its group with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "proto/gpu/device_mailbox.h"

namespace arcomm {

inline constexpr std::uint32_t kFifoSteps = 8;

// Where the bytes of a step lie. All steps of a FIFO have the mode that it was made with, and every
// entry says it again. 0 is none, so that memory of zeros is no entry.
enum class SlotMode : std::uint32_t {
  Normal = 1,   // in a slot of the FIFO's own: number s % 8
  Offset = 2,   // where the proxy says, in a pool that FIFOs share
  Pointer = 3,  // where the kernel says, in memory that has been registered
};

enum class FifoDirection : std::uint8_t { Send, Receive };

// 32 bits of its step and of its size: never 0 for a step, which is at least a byte long.
struct SizeWord {
  std::uint64_t step = 0;
  std::uint32_t bytes = 0;
};
constexpr std::uint64_t to_word(SizeWord word) {
  return (word.step + 1) << 32 | word.bytes;
}
constexpr std::uint32_t bytes_of(std::uint64_t size_word) {
  return static_cast<std::uint32_t>(size_word);
}
constexpr bool is_of_step(std::uint64_t size_word, std::uint64_t step) {
  return size_word >> 32 == ((step + 1) & 0xffff'ffffU);
}
// The step has been filled, and maybe later ones of its slot have, too.
constexpr bool is_of_step_or_later(std::uint64_t size_word, std::uint64_t step) {
  const auto ahead = static_cast<std::uint32_t>((size_word >> 32) - (step + 1));
  return size_word != 0 && ahead < 0x8000'0000U;
}
// What a slot shows while nobody has filled it for `step`: the lap before, or nothing yet.
constexpr bool is_of_lap_before(std::uint64_t size_word, std::uint64_t step) {
  return step < kFifoSteps ? size_word == 0 : is_of_step(size_word, step - kFifoSteps);
}

// One side's word about one step.
struct alignas(64) FifoEntry {
  std::uint64_t size_word;  // published last
  std::uint64_t sequence;   // step + 1
  std::uint64_t offset;     // in the FIFO's slots or in the pool; else 0
  std::uint64_t address;    // SlotMode::Pointer; else 0
  SlotMode mode;
};

struct FifoSlot {
  // Send: in Offset mode, where the kernel may stage. Receive: what has come, and where it lies.
  FifoEntry of_proxy;
  // Send: what is to be sent. Receive: in Pointer mode, where it is to go and how much fits there.
  FifoEntry of_kernel;
};

struct DeviceFifo {
  // Steps that the filler may have filled in all: at most eight more than have been emptied.
  // Written by the emptier. A Receive FIFO in Normal or Offset mode begins with eight.
  alignas(128) std::uint64_t granted;
  // Steps that are filled; written by the filler.
  alignas(128) std::uint64_t filled;
  // Not 0: a Done word (device_mailbox.h): it is over, and whoever waits stops. number: the step,
  // culprit_rank: the peer. Written by the proxy.
  alignas(128) std::uint64_t aborted;
  // The same, written by the kernel: which step it gave up, and for whom it waited.
  alignas(128) std::uint64_t failed;
  // No wait of a kernel here lasts longer, whatever its call allows; the daemon may cut it short.
  alignas(128) std::uint64_t most_wait_ns;
  // Not 0: the proxy sleeps, and the publisher wakes it. A kernel cannot, so the daemon does
  // when it launches one, and with an operation open the proxy only naps.
  alignas(128) std::uint32_t doorbell;
  alignas(128) FifoSlot slots[kFifoSteps];
};

static_assert(sizeof(FifoEntry) == 64 && sizeof(FifoSlot) == 128);
static_assert(sizeof(DeviceFifo) == 768 + 128 * kFifoSteps && std::is_trivial_v<DeviceFifo>);
static_assert(offsetof(DeviceFifo, slots) == 768 && std::is_standard_layout_v<DeviceFifo>);

constexpr std::uint32_t slot_of(std::uint64_t step) {
  return static_cast<std::uint32_t>(step % kFifoSteps);
}

}  // namespace arcomm

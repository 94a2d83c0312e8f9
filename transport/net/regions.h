// The memory of this daemon that peers may put bytes into, and the signals that they may raise.
// A region's name is never given twice, and not to be guessed: what comes late for one that is
// gone, or from who was never told, is dropped and counted. Such a frame is no fault of its stream,
// which serves all tenants. Thread: add and remove from any thread, under a lock; a connection
// enters a region with no lock and leaves it when its bytes are there.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "proto/net/frame.h"
#include "proto/status.h"

namespace arcomm::net {

using RegionId = std::uint64_t;  // generation << 32 | random << 10 | index; 0: none
using SignalWord = std::atomic<std::uint64_t>;

class Regions {
 public:
  // Whose frames may go in. What is late, from an epoch that is over, is dropped.
  struct Owner {
    std::uint64_t communicator = 0;
    std::uint32_t epoch = 0;
    bool operator==(const Owner&) const = default;
  };

  // Of payloads that did not fit their checksums: the memory that was being sent was changed
  // meanwhile, or the network changed the bytes. Their signals were not raised.
  struct Damage {
    std::uint64_t count = 0;
    std::uint64_t first_seq = 0;  // of the operation whose payload was the first; 0: count is 0
  };

 private:
  static constexpr std::uint64_t kNoSeq = ~std::uint64_t{0};
  struct Slot {
    // generation << 32 | visits << 1 | whether it is open. One word, so that entering and removing
    // see each other.
    std::atomic<std::uint64_t> state{0};
    std::span<std::byte> memory;
    std::span<SignalWord> signals;
    Owner owner;
    RegionId name = 0;
    // The first to count up writes the seq before it.
    std::atomic<std::uint64_t> damaged{0}, damaged_seq{kNoSeq};
  };

 public:
  static constexpr std::size_t kMost = 1024;  // 10 bits of a name

  // Held while a peer's bytes go into a region; the region cannot be removed meanwhile.
  class Visit {
   public:
    Visit() = default;
    Visit(Visit&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
    Visit& operator=(Visit&& other) noexcept {
      leave();
      slot_ = std::exchange(other.slot_, nullptr);
      return *this;
    }
    ~Visit() { leave(); }
    explicit operator bool() const { return slot_ != nullptr; }

   private:
    friend class Regions;
    explicit Visit(Slot* slot) : slot_(slot) {}
    void leave();
    Slot* slot_ = nullptr;
  };

  Regions() : slots_(std::make_unique<std::array<Slot, kMost>>()) {}
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  // The memory and the signals stay the caller's, and alive until remove() says true.
  // ResourceExhausted when kMost regions are there.
  Result<RegionId> add(std::span<std::byte> memory, std::span<SignalWord> signals, Owner owner);
  // False: bytes of a peer's are on their way in; ask again. From the first call on no new ones
  // come. True, too, for a region that is not there any more.
  bool remove(RegionId region);

  // For a Put or Signal frame: everything it says is checked here. An empty visit: there is no such
  // region of that owner (any more); the frame is counted, and to be dropped.
  // OutOfRange/OutOfBounds, naming range and size: the peer is wrong about a region that it was
  // told of.
  Result<Visit> enter(const FrameHeader& header);
  // Where the bytes of the frame go, and what is done when they are there: the signal is raised
  // (release). Precondition of these: entered for this header.
  static std::byte* place_of(const Visit& visit, const FrameHeader& header);
  static void raise(const Visit& visit, const FrameHeader& header);
  // Instead of raise(): the bytes are there and are not what was sealed.
  void damage(const Visit& visit, const FrameHeader& header);

  // Without a lock, for pollers of the region's signals. Precondition: its add() came before, and
  // no remove() has said true.
  Damage damaged(RegionId region) const;
  // Frames that were dropped since the beginning, whoever sent them.
  std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  // Frames that were dropped, and payloads that came damaged, since the last call, whichever thread
  // made it: for counting them. Any thread.
  struct News {
    std::uint64_t dropped = 0, damaged = 0;
  };
  News take_news() { return {dropped_news_.exchange(0), damaged_news_.exchange(0)}; }

 private:
  std::unique_ptr<std::array<Slot, kMost>> slots_;
  std::mutex changing_;
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<std::uint64_t> dropped_news_{0}, damaged_news_{0};
};

}  // namespace arcomm::net

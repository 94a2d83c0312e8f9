// All operations of the process and the tickets that name them: index plus generation, so that a
// spent ticket is recognised as one. Operations live in chunks that are never freed, hence find()
// takes no lock.
// Thread: any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "client/src/host/operation.h"
#include "proto/status.h"

namespace arcomm::client {

class TicketTable {
 public:
  TicketTable() = default;
  TicketTable(const TicketTable&) = delete;
  TicketTable& operator=(const TicketTable&) = delete;
  ~TicketTable();

  // A cleared operation with a fresh ticket; null when 2^20 are open.
  Operation* open();
  // The operation, while the ticket is not spent.
  Operation* find(std::uint64_t ticket) const;
  // Of several callers one succeeds: from then on the ticket is unknown, and the operation the
  // caller's.
  bool spend(Operation& operation, std::uint64_t ticket);
  // The operation may be opened again. Its ticket is spent.
  void recycle(Operation& operation);

 private:
  static constexpr std::size_t kChunk = 256;
  static constexpr std::size_t kChunks = 4096;
  struct Slot {
    Operation operation;
    std::uint32_t generation = 0;
  };

  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  std::mutex mutex_;
  std::uint32_t size_ = 0;
  std::vector<std::uint32_t> free_;
};

TicketTable& tickets();

}  // namespace arcomm::client

#include "client/src/host/ticket_table.h"

namespace arcomm::client {

TicketTable& tickets() {
  static auto* table = new TicketTable;  // never destroyed: threads may outlive main
  return *table;
}

TicketTable::~TicketTable() {
  for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
}

Operation* TicketTable::open() {
  const std::lock_guard lock(mutex_);
  std::uint32_t index = size_;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (size_ == kChunk * kChunks) {
    return nullptr;
  } else if (size_++ % kChunk == 0) {
    auto* chunk = new Slot[kChunk];
    for (std::uint32_t i = 0; i < kChunk; ++i) chunk[i].operation.index = index + i;
    chunks_[index / kChunk].store(chunk, std::memory_order_release);  // pairs with find's acquire
  }
  Slot& slot = chunks_[index / kChunk].load(std::memory_order_relaxed)[index % kChunk];
  if (++slot.generation == 0) slot.generation = 1;
  Operation& operation = slot.operation;
  operation.ticket.store((std::uint64_t{slot.generation} << 32) | index, std::memory_order_release);
  return &operation;
}

Operation* TicketTable::find(std::uint64_t ticket) const {
  const auto index = static_cast<std::uint32_t>(ticket);
  if (ticket == 0 || index >= kChunk * kChunks) return nullptr;
  Slot* chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
  if (chunk == nullptr) return nullptr;
  Operation& operation = chunk[index % kChunk].operation;
  return operation.ticket.load(std::memory_order_acquire) == ticket ? &operation : nullptr;
}

bool TicketTable::spend(Operation& operation, std::uint64_t ticket) {
  return operation.ticket.compare_exchange_strong(ticket, 0, std::memory_order_acq_rel);
}

void TicketTable::recycle(Operation& operation) {
  operation.done.store(false, std::memory_order_relaxed);
  operation.submitted.store(false, std::memory_order_relaxed);
  operation.claimed.store(false, std::memory_order_relaxed);
  operation.member.reset();
  operation.send = {};
  operation.recv = {};
  operation.plan = {};
  operation.staged = {};
  operation.num_staged = 0;
  operation.next_fill = operation.next_submit = operation.finished = operation.outstanding = 0;
  operation.wants_copy = operation.copying = operation.abandoned = false;
  operation.outcome = {};
  const std::lock_guard lock(mutex_);
  free_.push_back(operation.index);
}

}  // namespace arcomm::client

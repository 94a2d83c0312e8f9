// A ring of the last N records of one kind in shared memory. Thread: write() belongs to one thread;
// collect() may run on any, or in another process, while it writes: each slot is a seqlock of
// atomic words, and a reader skips a record that changes under it. The memory is the caller's.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

namespace arcomm {

inline constexpr std::size_t kRecordWords = 15;

// A seqlock without fences: version is odd while the words change. A word's release store comes
// after the odd version; a reader whose acquire load sees such a word therefore sees the odd
// version too, and drops the record. Two cache lines.
struct alignas(128) RecordSlot {
  std::atomic<std::uint64_t> version{0};
  std::array<std::atomic<std::uint64_t>, kRecordWords> words{};
};

// `Record` has a `number`: 1, 2, 3, ... in the order of first write; 0: not written yet.
template <typename Record>
class RecordRing {
 public:
  static_assert(std::is_trivially_copyable_v<Record>);
  static_assert(sizeof(Record) <= kRecordWords * sizeof(std::uint64_t));

  // `count` is a power of two, or 0: nothing is kept. `written`: records numbered so far.
  RecordRing(RecordSlot* slots, std::size_t count, std::atomic<std::uint64_t>* written)
      : slots_(slots), count_(count), written_(written) {}

  // Where there has been no ring before.
  void create() {
    for (std::size_t i = 0; i < count_; ++i) new (slots_ + i) RecordSlot;
  }
  std::size_t capacity() const { return count_; }
  std::uint64_t written() const { return written_->load(std::memory_order_acquire); }

  // The first write of a record gives it its number; later ones bring it up to date, or do nothing
  // when the ring has moved past it. No lock, no allocation, no system call.
  void write(Record& record) {
    if (count_ == 0) return;
    if (record.number == 0) {
      record.number = next_++;
    } else if (record.number + count_ < next_) {
      return;  // the ring has moved past it
    }
    RecordSlot& slot = slots_[record.number & (count_ - 1)];
    std::array<std::uint64_t, kRecordWords> words{};
    std::memcpy(words.data(), &record, sizeof(record));
    const std::uint64_t version = slot.version.load(std::memory_order_relaxed);
    slot.version.store(version + 1, std::memory_order_relaxed);
    for (std::size_t i = 0; i < kRecordWords; ++i)
      slot.words[i].store(words[i], std::memory_order_release);  // pairs with read()'s acquire
    slot.version.store(version + 2, std::memory_order_release);
    written_->store(next_ - 1, std::memory_order_release);
  }

  // The newest `limit` records that are complete, oldest first. 0: all.
  std::vector<Record> collect(std::size_t limit) const {
    const std::uint64_t last = written();
    const std::uint64_t kept = std::min<std::uint64_t>(last, count_);
    const std::uint64_t wanted = limit == 0 ? kept : std::min<std::uint64_t>(kept, limit);
    std::vector<Record> records;
    records.reserve(wanted);
    for (std::uint64_t number = last - wanted + 1; number <= last; ++number) {
      Record record;
      // A slot that holds another number was overtaken by the writer since.
      if (read(slots_[number & (count_ - 1)], record) && record.number == number)
        records.push_back(record);
    }
    return records;
  }

 private:
  static bool read(const RecordSlot& slot, Record& record) {
    constexpr int kTries = 3;
    for (int i = 0; i < kTries; ++i) {
      const std::uint64_t before = slot.version.load(std::memory_order_acquire);
      if (before % 2 != 0) continue;
      std::array<std::uint64_t, kRecordWords> words;
      for (std::size_t w = 0; w < kRecordWords; ++w)
        words[w] = slot.words[w].load(std::memory_order_acquire);  // pairs with write()'s release
      if (slot.version.load(std::memory_order_relaxed) != before) continue;
      std::memcpy(static_cast<void*>(&record), words.data(), sizeof(record));
      return true;
    }
    return false;
  }

  RecordSlot* slots_;
  std::size_t count_;
  std::atomic<std::uint64_t>* written_;
  std::uint64_t next_ = 1;  // the writer's own
};

}  // namespace arcomm

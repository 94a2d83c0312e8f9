#include "tests/support/sessions/memory_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace arcomm::proxy {
namespace {

// Fills rooms that are not written yet, as a wire may: who still reads there finds out.
constexpr int kPoison = 0xa5;

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0xcbf29ce484222325U;
  for (const std::byte byte : bytes)
    sum = (sum ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3U;
  return sum;
}

}  // namespace

class MemoryLink::End final : public Wire {
 public:
  explicit End(MemoryLink& link) : link_(link) {}

  net::Progress send(std::uint32_t lane, std::uint64_t step, std::span<const std::byte> bytes,
                     Transfer& transfer) override {
    const std::lock_guard lock(link_.mutex_);
    if (link_.is_cut_) return net::Progress::Failed;
    Lane& to = lanes[lane];
    if (hesitates() || to.sent.size() >= link_.options_.most_sent) return net::Progress::Again;
    if (step != to.next_sent++) link_.violated("a step was sent out of turn");
    transfer = link_.next_transfer_++;
    const std::uint64_t checksum = link_.options_.is_checked ? checksum_of(bytes) : 0;
    to.sent.push_back({transfer, step, bytes, checksum, {}, false});
    return net::Progress::Done;
  }

  net::Progress receive(std::uint32_t lane, std::uint64_t step, std::span<std::byte> room,
                        Transfer& transfer) override {
    const std::lock_guard lock(link_.mutex_);
    if (link_.is_cut_) return net::Progress::Failed;
    if (hesitates()) return net::Progress::Again;
    Lane& to = lanes[lane];
    if (step != to.next_room++) link_.violated("room for a step was given out of turn");
    if (link_.options_.is_checked) std::memset(room.data(), kPoison, room.size());
    transfer = link_.next_transfer_++;
    to.rooms.push_back({transfer, step, room});
    return net::Progress::Done;
  }

  net::Progress test(Transfer transfer, std::uint32_t& bytes) override {
    const std::lock_guard lock(link_.mutex_);
    if (link_.is_cut_) return net::Progress::Failed;
    const auto found = finished.find(transfer);
    if (found == finished.end() || hesitates()) return net::Progress::Again;
    bytes = found->second;
    finished.erase(found);
    return net::Progress::Done;
  }

  net::Progress flush(std::uint32_t, std::span<const std::byte>) override {
    const std::lock_guard lock(link_.mutex_);
    if (link_.is_cut_) return net::Progress::Failed;
    return hesitates() ? net::Progress::Again : net::Progress::Done;
  }

  net::Progress cancel(Transfer transfer) override {
    const std::lock_guard lock(link_.mutex_);
    if (hesitates()) return net::Progress::Again;
    for (auto& [number, lane] : lanes) {
      const auto rooms =
          std::erase_if(lane.rooms, [&](const Room& room) { return room.transfer == transfer; });
      const auto sent = std::erase_if(lane.sent, [&](const Sent& chunk) {
        return chunk.transfer == transfer && !(chunk.is_taken && link_.options_.is_checked);
      });
      lane.is_ended |= rooms + sent != 0;
    }
    finished.erase(transfer);
    return net::Progress::Done;
  }

  net::Progress progress() override {
    const std::lock_guard lock(link_.mutex_);
    return link_.options_.is_eager && !link_.is_cut_ && link_.move_all() ? net::Progress::Done
                                                                         : net::Progress::Again;
  }

  const Error& error() const override {
    static const Error cut{ErrorCode::Unavailable, Reason::RemoteDied, "the link is cut", -1};
    return cut;
  }

  bool hesitates() const { return link_.options_.hesitates && link_.options_.hesitates(); }

  std::map<std::uint32_t, Lane> lanes;
  std::map<Transfer, std::uint32_t> finished;  // with its bytes

 private:
  MemoryLink& link_;
};

MemoryLink::MemoryLink(Options options) : options_(std::move(options)) {
  for (auto& end : ends_) end = std::make_unique<End>(*this);
}
MemoryLink::~MemoryLink() = default;

Wire& MemoryLink::end(int which) {
  return *ends_[static_cast<std::size_t>(which)];
}

bool MemoryLink::take(Lane& from, End& sender) {
  if (from.is_ended) return false;
  for (Sent& sent : from.sent) {
    if (sent.is_taken) continue;
    sent.is_taken = true;
    if (!options_.is_checked) return true;  // its bytes stay where they are
    if (checksum_of(sent.bytes) != sent.checksum) violated("bytes changed while they were sent");
    sent.taken.assign(sent.bytes.begin(), sent.bytes.end());
    sender.finished[sent.transfer] = static_cast<std::uint32_t>(sent.bytes.size());
    return true;
  }
  return false;
}

bool MemoryLink::deliver(Lane& from, End& sender, Lane& to, End& receiver) {
  if (from.is_ended || to.is_ended) return false;
  if (from.sent.empty() || !from.sent.front().is_taken || to.rooms.empty()) return false;
  Sent& sent = from.sent.front();
  const Room& room = to.rooms.front();
  if (sent.step != room.step) violated("a step arrived in the room of another");
  const std::span<const std::byte> come = options_.is_checked ? sent.taken : sent.bytes;
  std::size_t bytes = std::min(come.size(), room.bytes.size());
  if (bytes != come.size()) violated("a chunk is longer than its room");
  if (shortens_) --bytes;
  shortens_ = false;
  std::memcpy(room.bytes.data(), come.data(), bytes);
  if (!options_.is_checked)
    sender.finished[sent.transfer] = static_cast<std::uint32_t>(come.size());
  receiver.finished[room.transfer] = static_cast<std::uint32_t>(bytes);
  from.sent.pop_front();
  to.rooms.pop_front();
  return true;
}

bool MemoryLink::move_one(const std::function<std::uint64_t()>& random) {
  const std::lock_guard lock(mutex_);
  if (is_cut_) return false;
  const std::size_t which = random() % 2;
  End& sender = *ends_[which];
  End& receiver = *ends_[1 - which];
  if (sender.lanes.empty()) return false;
  auto lane = sender.lanes.begin();
  std::advance(lane, static_cast<std::ptrdiff_t>(random() % sender.lanes.size()));
  if (random() % 2 == 0) return take(lane->second, sender);
  return deliver(lane->second, sender, receiver.lanes[lane->first], receiver);
}

bool MemoryLink::move_all() {
  bool moved = false;
  for (std::size_t which = 0; which < 2; ++which) {
    for (auto& [number, lane] : ends_[which]->lanes) {
      while (take(lane, *ends_[which])) moved = true;
      while (deliver(lane, *ends_[which], ends_[1 - which]->lanes[number], *ends_[1 - which]))
        moved = true;
    }
  }
  return moved;
}

void MemoryLink::cut() {
  const std::lock_guard lock(mutex_);
  is_cut_ = true;
}

void MemoryLink::shorten_next() {
  const std::lock_guard lock(mutex_);
  shortens_ = true;
}

std::vector<std::string> MemoryLink::violations() const {
  const std::lock_guard lock(mutex_);
  return violations_;
}

}  // namespace arcomm::proxy

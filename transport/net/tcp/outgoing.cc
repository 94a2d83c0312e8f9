#include "transport/net/tcp/outgoing.h"

#include <algorithm>
#include <cstring>

#include "proto/text.h"
#include "transport/net/sealing.h"

namespace arcomm::net {

bool Outgoing::push(Frame frame) {
  if (pushed_ - completed_ == kMostFrames || !goodbye_.empty()) return false;
  seal(frame.header, frame.payload);
  (*frames_)[pushed_++ % kMostFrames] = frame;
  return true;
}

void Outgoing::push_goodbye(std::string_view why) {
  const std::string_view words = cut_text(why, kMostMessageBytes);
  FrameHeader header{.kind = FrameKind::Goodbye};
  seal(header, std::as_bytes(std::span(words)));
  goodbye_.assign(reinterpret_cast<const char*>(&header), sizeof header);
  goodbye_ += words;
}

std::span<iovec> Outgoing::pieces(std::uint64_t most) {
  std::size_t count = 0;
  std::size_t skip = sent_of_first_;
  const auto add = [&](const void* data, std::size_t size) {
    if (skip >= size) {
      skip -= size;
      return;
    }
    // writev takes what it does not change as non-const.
    auto* bytes = const_cast<std::byte*>(static_cast<const std::byte*>(data));
    pieces_[count++] = {bytes + skip, size - skip};
    skip = 0;
  };
  for (std::uint64_t n = completed_; n < std::min(pushed_, most) && count + 2 < kMostPieces; ++n) {
    const Frame& frame = frame_at(n);
    add(&frame.header, sizeof frame.header);
    add(frame.payload.data(), frame.payload.size());
  }
  if (completed_ == pushed_ && !goodbye_.empty()) add(goodbye_.data(), goodbye_.size());
  return {pieces_.data(), count};
}

void Outgoing::sent(std::size_t count) {
  sent_of_first_ += count;
  for (; completed_ != pushed_; ++completed_) {
    const std::size_t size = sizeof(FrameHeader) + frame_at(completed_).payload.size();
    if (sent_of_first_ < size) return;
    sent_of_first_ -= size;
  }
  if (!goodbye_.empty() && sent_of_first_ >= goodbye_.size()) {
    goodbye_.clear();
    sent_of_first_ = 0;
  }
}

}  // namespace arcomm::net

#include "transport/net/tcp/outgoing.h"

#include <algorithm>
#include <cstring>

#include "proto/text.h"
#include "transport/net/sealing.h"

namespace arcomm::net {

bool Outgoing::push(Frame frame) {
  if (pushed_ - completed_ == kMostFrames || !goodbye_.empty()) return false;
  frame.header.number = pushed_;
  seal(frame.header, frame.payload);
  (*frames_)[pushed_++ % kMostFrames] = frame;
  return true;
}

void Outgoing::push_goodbye(std::string_view why) {
  const std::string_view words = cut_text(why, kMostMessageBytes);
  FrameHeader header{.kind = FrameKind::Goodbye, .number = pushed_};
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
  for (std::uint64_t n = sent_; n < std::min(pushed_, most) && count + 2 < kMostPieces; ++n) {
    const Frame& frame = frame_at(n);
    add(&frame.header, sizeof frame.header);
    add(frame.payload.data(), frame.payload.size());
  }
  if (sent_ == pushed_ && !goodbye_.empty()) add(goodbye_.data(), goodbye_.size());
  return {pieces_.data(), count};
}

void Outgoing::sent(std::size_t count) {
  sent_bytes_ += count;
  sent_of_first_ += count;
  for (; sent_ != pushed_; ++sent_) {
    if (sent_of_first_ < bytes_of(sent_)) return;
    sent_of_first_ -= bytes_of(sent_);
  }
  if (!goodbye_.empty() && sent_of_first_ >= goodbye_.size()) {
    goodbye_.clear();
    sent_of_first_ = 0;
  }
}

void Outgoing::release(std::uint64_t bytes) {
  for (; completed_ != sent_ && completed_bytes_ + bytes_of(completed_) <= bytes; ++completed_)
    completed_bytes_ += bytes_of(completed_);
}

}  // namespace arcomm::net

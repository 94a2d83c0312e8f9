#include "daemon/control/access/frame_reader.h"

#include <algorithm>

namespace arcomm {
namespace {

constexpr std::uint8_t kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kContinuation = 9;
constexpr std::uint8_t kEndStream = 1, kEndHeaders = 4;
constexpr std::size_t kLengthBytes = 3;

}  // namespace

Status FrameReader::read(std::span<const std::byte> bytes) {
  std::size_t at = 0;
  for (; at < bytes.size() && !prefaced(); ++at, ++preface_) {
    if (bytes[at] != static_cast<std::byte>(kPreface[preface_])) {
      return error(ErrorCode::InvalidArgument, Reason::BadValue,
                   "no HTTP/2: the preface differs at byte ", preface_);
    }
  }
  while (at < bytes.size()) {
    if (left_ > 0) {
      const std::size_t taken = std::min(left_, bytes.size() - at);
      left_ -= taken;
      at += taken;
      if (left_ == 0) ++frames_;
      continue;
    }
    const auto byte = static_cast<std::uint8_t>(bytes[at++]);
    if (header_ < kLengthBytes) length_ = length_ << 8 | byte;
    if (header_ == kLengthBytes) type_ = byte;
    if (header_ == kLengthBytes + 1) flags_ = byte;
    if (header_ > kLengthBytes + 1) stream_ = stream_ << 8 | byte;
    if (++header_ == kHeaderBytes) ARC_RETURN_IF_ERROR(begin_frame());
  }
  return {};
}

Status FrameReader::begin_frame() {
  if (side_ == Side::Client && length_ > kMostFrameBytes) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "a frame of ", length_,
                 " bytes, and ", kMostFrameBytes, " is the most");
  }
  if (side_ == Side::Client && frames_ == 0 && type_ != kSettings) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "no HTTP/2: the first frame has type ", unsigned{type_}, " and is not SETTINGS");
  }
  count_frame();
  if (calls_ != nullptr) follow_call();
  ARC_RETURN_IF_ERROR(check_header_block());
  left_ = length_;
  header_ = 0;
  length_ = 0;
  if (left_ == 0) ++frames_;
  return {};
}

void FrameReader::count_frame() {
  if (type_ == kHeaders) {
    ++counts_.calls;
  } else if (type_ == kReset) {
    ++counts_.resets;
  } else if (type_ != kData || (length_ == 0 && (flags_ & kEndStream) == 0)) {
    ++counts_.others;
  }
}

void FrameReader::follow_call() {
  const std::uint32_t stream = stream_ & 0x7fff'ffff;  // the first bit is reserved
  const bool is_last =
      side_ == Side::Server && (type_ == kHeaders || type_ == kData) && (flags_ & kEndStream) != 0;
  if (type_ == kReset || is_last) {
    calls_->end(stream);
  } else if (side_ == Side::Client && type_ == kHeaders) {
    calls_->begin(stream);
  }
}

Status FrameReader::check_header_block() {
  if (side_ == Side::Server || (type_ != kHeaders && type_ != kContinuation)) return {};
  if (type_ == kHeaders) header_block_ = 0;
  header_block_ += length_;
  if (header_block_ > kMostHeaderBytes) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "headers of ", header_block_,
                 " bytes and more, and ", kMostHeaderBytes, " is the most");
  }
  if ((flags_ & kEndHeaders) != 0) header_block_ = 0;
  return {};
}

}  // namespace arcomm

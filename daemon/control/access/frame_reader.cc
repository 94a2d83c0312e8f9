#include "daemon/control/access/frame_reader.h"

#include <algorithm>

namespace arcomm {
namespace {

constexpr std::uint8_t kSettings = 4;
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
    if (++header_ == kHeaderBytes) ARC_RETURN_IF_ERROR(begin_frame());
  }
  return {};
}

Status FrameReader::begin_frame() {
  if (length_ > kMostFrameBytes) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "a frame of ", length_,
                 " bytes, and ", kMostFrameBytes, " is the most");
  }
  if (frames_ == 0 && type_ != kSettings) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "no HTTP/2: the first frame has type ", unsigned{type_}, " and is not SETTINGS");
  }
  left_ = length_;
  header_ = 0;
  length_ = 0;
  if (left_ == 0) ++frames_;
  return {};
}

}  // namespace arcomm

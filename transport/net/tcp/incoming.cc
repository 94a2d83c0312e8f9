#include "transport/net/tcp/incoming.h"

#include <algorithm>
#include <cstring>

#include "proto/text.h"
#include "transport/net/endpoint.h"
#include "transport/net/sealing.h"

namespace arcomm::net {
namespace {

constexpr std::size_t kMostGoodbyeBytes = 400;

}  // namespace

Incoming::Incoming(Regions& regions, std::optional<Secret> answer)
    : landing_(regions),
      answer_(answer),
      next_number_(answer ? 0 : 1),
      buffer_(std::make_unique<std::array<std::byte, kBufferBytes>>()) {}

std::array<iovec, 2> Incoming::room() {
  if (is_held_) return {};
  if (rest_bytes_ == 0 && begin_ > 0) {
    std::memmove(buffer_->data(), buffer_->data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  // Behind a payload comes the next header and no more, so that a stream of chunks is copied once,
  // by the kernel.
  const std::size_t most = rest_bytes_ > 0 ? sizeof(FrameHeader) : buffer_->size();
  return {iovec{rest_, rest_bytes_},
          iovec{buffer_->data() + end_, std::min(most, buffer_->size() - end_)}};
}

Status Incoming::take(std::size_t count, Receiver& receiver) {
  if (rest_bytes_ > 0) {
    const std::size_t landed = std::min(count, rest_bytes_);
    rest_ += landed;
    rest_bytes_ -= landed;
    count -= landed;
    if (rest_bytes_ > 0) return {};
    ARC_RETURN_IF_ERROR(landing_.finish(receiver));
  }
  end_ += count;
  for (;;) {
    auto taken = take_frame(receiver);
    if (!taken) return std::move(taken).error();
    if (!*taken) return {};
  }
}

Result<bool> Incoming::take_frame(Receiver& receiver) {
  is_held_ = false;
  if (unread().size() < sizeof(FrameHeader)) return false;
  auto header = open_header(unread().first<sizeof(FrameHeader)>());
  if (!header) return std::move(header).error();
  ARC_RETURN_IF_ERROR(check_number(*header, next_number_));
  switch (header->kind) {
    case FrameKind::Hello:
    case FrameKind::Welcome:
    case FrameKind::Goodbye:
      return take_greeting(*header);
    case FrameKind::Message:
    case FrameKind::Chunk:
    case FrameKind::Put:
    case FrameKind::Signal:
      break;
  }
  if (answer_)
    return error(ErrorCode::DataLoss, Reason::Corrupt, "a ", text_of(header->kind),
                 " frame came where a welcome was expected");
  auto place = landing_.begin(*header, receiver);
  if (!place) return std::move(place).error();
  if (*place == nullptr) {
    is_held_ = true;
    return false;
  }
  ++next_number_;
  begin_ += sizeof(FrameHeader);
  const std::size_t here = std::min<std::size_t>(unread().size(), header->length);
  if (here > 0) std::memcpy(*place, unread().data(), here);
  begin_ += here;
  rest_ = *place + here;
  rest_bytes_ = header->length - here;
  if (rest_bytes_ > 0) {
    begin_ = end_ = 0;  // all of it was the payload's
    return false;
  }
  ARC_RETURN_IF_ERROR(landing_.finish(receiver));
  return true;
}

Result<bool> Incoming::take_greeting(const FrameHeader& header) {
  if (unread().size() < sizeof(FrameHeader) + header.length) return false;
  const auto payload = unread().subspan(sizeof(FrameHeader), header.length);
  ARC_RETURN_IF_ERROR(check_payload(header, payload));
  ++next_number_;
  begin_ += sizeof(FrameHeader) + header.length;
  if (header.kind == FrameKind::Welcome && answer_) {
    ARC_RETURN_IF_ERROR(check_answer(payload, *answer_));
    answer_.reset();
    return true;
  }
  if (header.kind == FrameKind::Goodbye) {
    const std::string_view words(reinterpret_cast<const char*>(payload.data()), payload.size());
    return error(ErrorCode::Aborted, Reason::RemoteAborted,
                 "the peer ended the connection: ", safe_text(words, kMostGoodbyeBytes));
  }
  return error(ErrorCode::DataLoss, Reason::Corrupt, "a second ", text_of(header.kind), " frame");
}

}  // namespace arcomm::net

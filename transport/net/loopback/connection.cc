#include "transport/net/loopback/connection.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "proto/text.h"
#include "transport/net/endpoint.h"
#include "transport/net/sealing.h"

namespace arcomm::net {
namespace {

constexpr Capabilities kLoopbackCapabilities{.transport = "loopback",
                                             .most_posted = LoopbackConnection::kMostFrames};

std::size_t bytes_on_their_way(const LoopbackNetwork::Direction& direction) {
  std::size_t bytes = 0;
  for (const auto& flight : direction.flights) bytes += flight.bytes.size();
  return bytes;
}

}  // namespace

LoopbackConnection::LoopbackConnection(LoopbackNetwork& network, std::shared_ptr<Regions> regions,
                                       Options options)
    : network_(network),
      options_(std::move(options)),
      regions_(std::move(regions)),
      landing_(*regions_) {
  if (!options_.is_welcomed) return;
  state_ = State::Open;
  next_number_ = 1;  // its hello is there
  FrameHeader welcome{.kind = FrameKind::Welcome};
  seal(welcome, options_.answer);
  network_.send(*options_.out, welcome, options_.answer);
}

LoopbackConnection::LoopbackConnection(LoopbackNetwork& network, std::shared_ptr<Regions> regions,
                                       std::string name, Error error)
    : network_(network), regions_(std::move(regions)), landing_(*regions_) {
  options_.name = std::move(name);
  fail(std::move(error));
}

LoopbackConnection::~LoopbackConnection() {
  if (options_.out) options_.out->is_over = true;
}

const Capabilities& LoopbackConnection::capabilities_of_all() {
  return kLoopbackCapabilities;
}

Progress LoopbackConnection::is_open() const {
  if (state_ == State::Open) return Progress::Done;
  return state_ == State::Greeting ? Progress::Again : Progress::Failed;
}

Progress LoopbackConnection::post(const Frame& frame, Transfer& transfer) {
  if (is_open() == Progress::Failed) return Progress::Failed;
  if (waiting_.size() >= kMostFrames) return Progress::Again;
  transfer = ++posted_;
  FrameHeader& header = waiting_.emplace_back(frame).header;
  header.number = posted_;
  seal(header, frame.payload);
  return Progress::Done;
}

Progress LoopbackConnection::test(Transfer transfer) const {
  if (completed_ >= transfer) return Progress::Done;
  return state_ == State::Failed ? Progress::Failed : Progress::Again;
}

Progress LoopbackConnection::progress(Receiver& receiver) {
  bool moved = false;
  if (state_ != State::Failed) moved = send_step();
  if (state_ == State::Greeting || state_ == State::Open) moved |= receive_step(receiver);
  if (state_ != State::Failed) look_for_loss();
  if (state_ != State::Failed) return moved ? Progress::Done : Progress::Again;
  landing_.abandon(receiver);
  return Progress::Failed;
}

bool LoopbackConnection::send_step() {
  bool moved = false;
  // A peer that has not answered with what was agreed gets nothing.
  while (state_ != State::Greeting && !waiting_.empty() &&
         bytes_on_their_way(*options_.out) < kMostInFlight) {
    const Frame& frame = waiting_.front();
    network_.send(*options_.out, frame.header, frame.payload);
    statistics_.sent_bytes += sizeof(FrameHeader) + frame.payload.size();
    waiting_.pop_front();
    ++completed_;
    moved = true;
  }
  if (state_ == State::Closing && waiting_.empty()) {
    FrameHeader header{.kind = FrameKind::Goodbye, .number = posted_ + 1};
    const auto words = std::as_bytes(std::span(goodbye_));
    seal(header, words);
    network_.send(*options_.out, header, words);
    options_.out->is_over = true;
    state_ = State::Failed;
    return true;
  }
  return moved;
}

bool LoopbackConnection::receive_step(Receiver& receiver) {
  bool moved = false;
  while (const auto* flight = network_.arrived(*options_.in)) {
    auto taken = take(*flight, receiver);
    if (!taken) {
      fail_for(std::move(taken).error(), receiver);
      return true;
    }
    if (!*taken) return moved;
    ++next_number_;
    statistics_.received_bytes += flight->bytes.size();
    options_.in->flights.pop_front();
    moved = true;
  }
  return moved;
}

Result<bool> LoopbackConnection::take(const LoopbackNetwork::Direction::Flight& flight,
                                      Receiver& receiver) {
  const std::span<const std::byte> bytes(flight.bytes);
  const auto header = open_header(bytes.first<sizeof(FrameHeader)>());
  if (!header) return header.error();
  ARC_RETURN_IF_ERROR(check_number(*header, next_number_));
  const auto payload = bytes.subspan(sizeof(FrameHeader));
  if (header->kind == FrameKind::Welcome && state_ == State::Greeting) {
    ARC_RETURN_IF_ERROR(check_payload(*header, payload));
    ARC_RETURN_IF_ERROR(check_answer(payload, options_.answer));
    state_ = State::Open;
    return true;
  }
  if (header->kind == FrameKind::Goodbye) {
    ARC_RETURN_IF_ERROR(check_payload(*header, payload));
    const std::string_view words(reinterpret_cast<const char*>(payload.data()), payload.size());
    return arcomm::error(ErrorCode::Aborted, Reason::RemoteAborted,
                         "the peer ended the connection: ", safe_text(words, 400));
  }
  const bool is_greeting = header->kind == FrameKind::Hello || header->kind == FrameKind::Welcome;
  if (is_greeting || state_ == State::Greeting || payload.size() != header->length)
    return arcomm::error(ErrorCode::DataLoss, Reason::Corrupt, "a ", text_of(header->kind),
                         " frame that has no business here");
  auto place = landing_.begin(*header, receiver);
  if (!place) return std::move(place).error();
  if (*place == nullptr) return false;
  if (!payload.empty()) std::memcpy(*place, payload.data(), payload.size());
  ARC_RETURN_IF_ERROR(landing_.finish(receiver));
  return true;
}

// What TCP finds out by its timers and resets.
void LoopbackConnection::look_for_loss() {
  const auto& out = *options_.out;
  const auto& in = *options_.in;
  if (network_.is_dead(out.to) || network_.is_dead(out.from))
    return fail(arcomm::error(ErrorCode::Unavailable, Reason::RemoteDied,
                              "receiving: Connection reset by peer (errno 104)"));
  if (in.is_over && in.flights.empty())
    return fail(arcomm::error(ErrorCode::Unavailable, Reason::RemoteDied,
                              "the peer ended the connection without a word"));
  if (state_ == State::Greeting && network_.now() > options_.greeted_by)
    return fail(arcomm::error(ErrorCode::Unavailable, Reason::Timeout,
                              "the peer accepted, and did not answer our hello in time"));
  const bool is_unheard = network_.is_cut(out.from, out.to) && !out.flights.empty();
  if (is_unheard && network_.now() - out.flights.front().sent > options_.peer_timeout)
    fail(arcomm::error(ErrorCode::Unavailable, Reason::Timeout,
                       "sending: Connection timed out (errno 110)"));
}

void LoopbackConnection::close(std::string_view why) {
  if (is_open() == Progress::Failed) return;
  error_ = arcomm::error(ErrorCode::Cancelled, Reason::None, options_.name,
                         ": ended by this daemon: ", why);
  // A peer that is not known yet gets neither what was posted nor our words.
  if (state_ == State::Greeting) {
    state_ = State::Failed;
    options_.out->is_over = true;
    return;
  }
  goodbye_ = cut_text(why, kMostMessageBytes);
  state_ = State::Closing;
}

void LoopbackConnection::fail_for(Error fault, Receiver& receiver) {
  if (state_ != State::Open || fault.reason == Reason::RemoteAborted) return fail(std::move(fault));
  landing_.abandon(receiver);
  close(std::string(kYourFault) + fault.message);
  error_ = std::move(fault);
  error_.message = options_.name + ": " + error_.message;
}

void LoopbackConnection::fail(Error error) {
  if (state_ != State::Closing) {
    error_ = std::move(error);
    error_.message = options_.name + ": " + error_.message;
  }
  state_ = State::Failed;
  if (options_.out) options_.out->is_over = true;
}

}  // namespace arcomm::net

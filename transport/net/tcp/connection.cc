#include "transport/net/tcp/connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

namespace arcomm::net {
namespace {

constexpr Capabilities kTcpCapabilities{
    .transport = "tcp", .most_posted = Outgoing::kMostFrames - 1, .may_not_copy = true};
// A peer that does not end its side after our goodbye is not waited for longer.
constexpr std::chrono::milliseconds kDrainTime{1000};
// What one call of progress() moves at most each way, so that one busy connection does not hold up
// the others of its thread.
constexpr int kMostCalls = 8;
// Below this a copy costs less than to pin pages and to hear that they are free again.
constexpr std::size_t kLeastUncopied = std::size_t{32} << 10;

}  // namespace

ConnectionPtr TcpConnection::connecting(UniqueFd socket, Options options, const HelloKey& key,
                                        const Secret& answer) {
  std::unique_ptr<TcpConnection> made(
      new TcpConnection(std::move(socket), std::move(options), State::Connecting, key, answer));
  made->outgoing_.push(
      {.header = {.kind = FrameKind::Hello}, .payload = std::as_bytes(std::span(&made->key_, 1))});
  return made;
}

ConnectionPtr TcpConnection::accepted(UniqueFd socket, Options options, const Secret& answer) {
  std::unique_ptr<TcpConnection> made(
      new TcpConnection(std::move(socket), std::move(options), State::Open, {}, answer));
  made->outgoing_.push({.header = {.kind = FrameKind::Welcome}, .payload = made->answer_});
  return made;
}

TcpConnection::TcpConnection(UniqueFd socket, Options options, State state, const HelloKey& key,
                             const Secret& answer)
    : socket_(std::move(socket)),
      options_(std::move(options)),
      state_(state),
      greeted_by_(Clock::now() + options_.greeting_timeout),
      key_(key),
      answer_(answer),
      incoming_(*options_.regions,
                state == State::Open ? std::nullopt : std::optional<Secret>(answer)) {}

const Capabilities& TcpConnection::capabilities_of_all() {
  return kTcpCapabilities;
}

Progress TcpConnection::is_open() const {
  if (state_ == State::Open) return Progress::Done;
  const bool is_coming = state_ == State::Connecting || state_ == State::Greeting;
  return is_coming ? Progress::Again : Progress::Failed;
}

Progress TcpConnection::post(const Frame& frame, Transfer& transfer) {
  if (is_open() == Progress::Failed) return Progress::Failed;
  if (!outgoing_.push(frame)) return Progress::Again;
  transfer = outgoing_.pushed();
  return Progress::Done;
}

Progress TcpConnection::test(Transfer transfer) const {
  if (outgoing_.completed() >= transfer) return Progress::Done;
  return state_ == State::Failed ? Progress::Failed : Progress::Again;
}

Progress TcpConnection::flush() const {
  return test(outgoing_.pushed());
}

bool TcpConnection::wants_to_send() const {
  return state_ == State::Connecting || !outgoing_.is_empty();
}

Progress TcpConnection::progress(Receiver& receiver) {
  bool moved = false;
  if (state_ == State::Connecting) moved = connect_step();
  if (state_ != State::Failed) moved |= release_step();
  if (state_ == State::Greeting || state_ == State::Open || state_ == State::Closing)
    moved |= send_step();
  if (state_ == State::Greeting || state_ == State::Open) moved |= receive_step(receiver);
  if (state_ == State::Draining) moved |= drain_step();
  if (moved) frame_since_ = {};
  if (!moved && state_ != State::Failed) look_at_clock();
  if (state_ != State::Failed) return moved ? Progress::Done : Progress::Again;
  incoming_.abandon(receiver);
  return Progress::Failed;
}

void TcpConnection::look_at_clock() {
  const auto now = Clock::now();
  const auto timed_out = [this](std::string_view what) {
    fail(arcomm::error(ErrorCode::Unavailable, Reason::Timeout, what));
  };
  if (is_open() == Progress::Again && now > greeted_by_)
    return timed_out(state_ == State::Connecting
                         ? "nothing answers at the peer's port in time"
                         : "the peer accepted, and did not answer our hello in time");
  if (state_ == State::Closing && now > drained_by_)
    return timed_out("the peer does not take our last frames");
  if (incoming_.is_in_frame()) {
    if (frame_since_ == Clock::time_point{}) frame_since_ = now;
    if (now - frame_since_ > options_.peer_timeout)
      return timed_out("the peer began a frame and does not send its rest");
  }
  if (state_ == State::Connecting || now < next_look_) return;
  next_look_ = now + options_.peer_timeout / 10;
  if (is_silent(now)) {
    fail_with_errno("sending", ETIMEDOUT);
  } else if (incoming_.is_held()) {
    // Nobody reads meanwhile, and would see it.
    int number = 0;
    socklen_t size = sizeof number;
    if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &number, &size) == 0 && number != 0)
      fail_with_errno("receiving", number);
  }
}

// The kernel's figure alone says nothing of a peer that had nothing to answer before: what it owes
// may have been sent this moment.
bool TcpConnection::is_silent(Clock::time_point now) {
  const std::chrono::milliseconds silence = silence_of(socket_.get());
  const bool owes = silence.count() != 0;
  // Nobody may have looked for long: an answer that came since the last look counts. The kernel
  // counts in ticks.
  constexpr std::chrono::milliseconds kTick{10};
  if (!owes || now - silence + kTick >= silent_since_) silent_since_ = now;
  return owes && silence > options_.peer_timeout && now - silent_since_ > options_.peer_timeout;
}

bool TcpConnection::connect_step() {
  const int result = connect_result(socket_.get());
  if (result == EINPROGRESS) return false;
  if (result != 0) return fail_with_errno("connecting", result);
  state_ = State::Greeting;
  return true;
}

bool TcpConnection::send_step() {
  bool moved = false;
  for (int calls = 0; calls < kMostCalls && !outgoing_.is_empty(); ++calls) {
    // Until it is welcome here, the peer gets our hello and nothing else.
    const auto pieces = state_ == State::Greeting ? outgoing_.pieces(1) : outgoing_.pieces();
    if (pieces.empty()) break;
    std::size_t offered = 0;
    for (const iovec& piece : pieces) offered += piece.iov_len;
    const ssize_t sent = send_pieces(pieces, offered);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (sent < 0) return fail_with_errno("sending", errno);
    outgoing_.sent(static_cast<std::size_t>(sent));
    moved = true;
    if (static_cast<std::size_t>(sent) < offered) break;
  }
  outgoing_.release(uncopied_.released(outgoing_.sent_bytes()));
  if (state_ == State::Closing && outgoing_.is_empty()) {
    shutdown(socket_.get(), SHUT_WR);
    state_ = State::Draining;
    drained_by_ = Clock::now() + kDrainTime;
    return true;
  }
  return moved;
}

ssize_t TcpConnection::send_pieces(std::span<iovec> pieces, std::size_t bytes) {
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  // The words of a goodbye do not stay.
  if (!copies_ && bytes >= kLeastUncopied && !outgoing_.has_goodbye() && uncopied_.has_room()) {
    const ssize_t sent = sendmsg(socket_.get(), &message, kFlags | MSG_ZEROCOPY);
    if (sent > 0) uncopied_.begun(outgoing_.sent_bytes());
    // No more memory may be pinned now: what is there is let go of by and by.
    if (sent >= 0 || errno != ENOBUFS) return sent;
  }
  return sendmsg(socket_.get(), &message, kFlags);
}

bool TcpConnection::release_step() {
  if (uncopied_.is_empty() || !uncopied_.collect(socket_.get())) return false;
  outgoing_.release(uncopied_.released(outgoing_.sent_bytes()));
  return true;
}

bool TcpConnection::send_without_copies(bool wanted) {
  const int on = 1;
  const bool can = wanted && state_ != State::Failed &&
                   setsockopt(socket_.get(), SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0;
  copies_ = !can;
  return can;
}

LinkStatistics TcpConnection::statistics() const {
  if (state_ == State::Failed) return {};
  LinkStatistics statistics = statistics_of(socket_.get());
  statistics.uncopied_sends = uncopied_.count();
  statistics.copied_anyway = uncopied_.copied();
  return statistics;
}

bool TcpConnection::receive_step(Receiver& receiver) {
  bool moved = false;
  for (int calls = 0; calls < kMostCalls; ++calls) {
    if (incoming_.is_held()) {
      if (Status taken = incoming_.take(0, receiver); !taken)
        return fail_for(std::move(taken).error(), receiver);
      if (incoming_.is_held()) return moved;
      moved = true;
    }
    auto room = incoming_.room();
    msghdr message{};
    message.msg_iov = room.data();
    message.msg_iovlen = room.size();
    const ssize_t got = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return moved;
    if (got < 0) return fail_with_errno("receiving", errno);
    if (got == 0)
      return fail(arcomm::error(ErrorCode::Unavailable, Reason::RemoteDied,
                                "the peer ended the connection without a word"));
    const bool is_all = static_cast<std::size_t>(got) < room[0].iov_len + room[1].iov_len;
    if (Status taken = incoming_.take(static_cast<std::size_t>(got), receiver); !taken)
      return fail_for(std::move(taken).error(), receiver);
    moved = true;
    if (incoming_.is_welcomed() && state_ == State::Greeting) state_ = State::Open;
    if (is_all) return true;
  }
  return moved;
}

// What comes after our goodbye is of no interest, but a socket that is closed with unread bytes
// resets the connection, and the peer would read the reset instead of the goodbye.
bool TcpConnection::drain_step() {
  std::array<std::byte, 4096> scratch;
  ssize_t got = 0;
  int calls = 0;
  do {
    got = recv(socket_.get(), scratch.data(), scratch.size(), MSG_DONTWAIT);
  } while (got > 0 && ++calls < kMostCalls);
  const bool waits = got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  if (waits && Clock::now() < drained_by_) return got > 0;
  state_ = State::Failed;
  end_socket();
  return true;
}

void TcpConnection::close(std::string_view why) {
  if (is_open() == Progress::Failed) return;
  error_ = arcomm::error(ErrorCode::Cancelled, Reason::None, options_.name,
                         ": ended by this daemon: ", why);
  // A peer that is not known yet gets neither what was posted nor our words.
  if (is_open() == Progress::Again) {
    state_ = State::Failed;
    end_socket();
    return;
  }
  outgoing_.push_goodbye(why);
  state_ = State::Closing;
  drained_by_ = Clock::now() + options_.peer_timeout;
}

void TcpConnection::abandon(Receiver& receiver) {
  incoming_.abandon(receiver);
}

void TcpConnection::end_socket() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  if (socket_ && !uncopied_.is_empty())
    (void)setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  socket_.reset();
}

bool TcpConnection::fail(Error error) {
  // After our own goodbye the reason is ours, whatever becomes of the socket.
  if (state_ != State::Closing) {
    error_ = std::move(error);
    error_.message = options_.name + ": " + error_.message;
  }
  state_ = State::Failed;
  end_socket();
  return true;
}

// A goodbye of the peer's is an end like any other, and no fault.
bool TcpConnection::fail_for(Error fault, Receiver& receiver) {
  if (state_ != State::Open || fault.reason == Reason::RemoteAborted) return fail(std::move(fault));
  incoming_.abandon(receiver);  // now: what it holds is waited for
  const std::string words = std::string(kYourFault) + fault.message;
  close(words);
  error_ = std::move(fault);
  error_.message = options_.name + ": " + error_.message;
  return true;
}

bool TcpConnection::fail_with_errno(std::string_view what, int number) {
  return fail(arcomm::error(ErrorCode::Unavailable,
                            number == ETIMEDOUT ? Reason::Timeout : Reason::RemoteDied, what, ": ",
                            text_of_errno(number)));
}

}  // namespace arcomm::net

#include "daemon/control/peers/links/link_meter.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

namespace arcomm {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::uint32_t kPing = 1, kPong = 2, kFlood = 3, kSent = 4, kReceived = 5, kDone = 6;
constexpr std::size_t kMostNotes = 64;
constexpr std::size_t kWarmUp = 50, kMostEchoes = 20'000;
constexpr nanoseconds kSpinForNote{std::chrono::microseconds(200)};
constexpr std::uint32_t kLoansPerStream = 4;
constexpr std::chrono::microseconds kPauseOfPoster{50};
// What is sent: larger than the caches that are near, as operations are.
constexpr std::size_t kPayloadChunks = 64;

std::uint64_t ns_of(LinkMeter::Clock::time_point when) {
  return static_cast<std::uint64_t>(nanoseconds(when.time_since_epoch()).count());
}

}  // namespace

// A message of the two, as it lies in memory; little-endian.
struct LinkMeter::Note {
  std::uint32_t kind = 0, zero = 0;
  std::uint64_t bytes = 0;  // Sent, Received
  std::uint64_t ns = 0;     // Received: from the first to the last
};

// What came on the stream of messages.
class LinkMeter::Notes final : public net::Receiver {
 public:
  Result<std::byte*> place(const net::FrameHeader& header) override {
    if (header.kind != net::FrameKind::Message || header.length != sizeof(Note) ||
        heard.size() >= kMostNotes)
      return error(ErrorCode::DataLoss, Reason::Corrupt, "no message of a measurement");
    return place_.data();
  }
  Status arrived(const net::FrameHeader&, std::span<const std::byte> payload) override {
    std::memcpy(&heard.emplace_back(), payload.data(), sizeof(Note));
    return {};
  }
  void abandoned(const net::FrameHeader&) override {}

  std::deque<Note> heard;

 private:
  std::array<std::byte, sizeof(Note)> place_{};
};

// What came on the bulk streams, whose threads call it.
class LinkMeter::Flood final : public net::Receiver {
 public:
  explicit Flood(std::size_t streams) : places_(streams * net::kMostChunkBytes) {
    for (std::size_t i = 0; i < streams; ++i) free_.push_back(&places_[i * net::kMostChunkBytes]);
  }
  Result<std::byte*> place(const net::FrameHeader& header) override {
    if (header.kind != net::FrameKind::Chunk)
      return error(ErrorCode::DataLoss, Reason::Corrupt, "no chunk of a measurement");
    std::lock_guard lock(mutex_);
    if (free_.empty()) return static_cast<std::byte*>(nullptr);
    std::byte* const place = free_.back();
    free_.pop_back();
    return place;
  }
  Status arrived(const net::FrameHeader&, std::span<const std::byte> payload) override {
    const std::uint64_t now = ns_of(Clock::now());
    std::lock_guard lock(mutex_);
    free_.push_back(const_cast<std::byte*>(payload.data()));  // one of places_
    if (bytes_ == 0) first_ns_ = now;
    last_ns_ = now;
    bytes_ += payload.size();
    return {};
  }
  // Its place is lost, and its stream: what waits for the bytes hears of it.
  void abandoned(const net::FrameHeader&) override {}

  Note received() const {
    std::lock_guard lock(mutex_);
    return {.kind = kReceived, .zero = 0, .bytes = bytes_, .ns = last_ns_ - first_ns_};
  }

 private:
  std::vector<std::byte> places_;
  mutable std::mutex mutex_;
  std::vector<std::byte*> free_;
  std::uint64_t bytes_ = 0, first_ns_ = 0, last_ns_ = 0;
};

LinkMeter::LinkMeter(std::vector<net::ConnectionPtr> connections, Options options)
    : options_(options), notes_(std::make_unique<Notes>()) {
  messages_ = std::move(connections.front());
  for (std::size_t i = 1; i < connections.size(); ++i) bulk_.push_back(std::move(connections[i]));
}

LinkMeter::~LinkMeter() {
  streams_.reset();
  messages_->abandon(*notes_);
}

Result<LinkSpeed> LinkMeter::lead() {
  ARC_RETURN_IF_ERROR(open_streams());
  LinkSpeed measured;
  ARC_RETURN_IF_ERROR(measure_echoes(measured));
  ARC_RETURN_IF_ERROR(say({.kind = kFlood}));
  const Result<Note> here = flood();
  if (!here) return here.error();
  const Result<Note> there = hear(kReceived);
  if (!there) return there.error();
  ARC_RETURN_IF_ERROR(say({.kind = kDone}));
  const auto speed = [](const Note& note) {
    constexpr double kNsInASecond = 1e9;
    if (note.ns == 0) return std::uint64_t{0};
    return static_cast<std::uint64_t>(static_cast<double>(note.bytes) /
                                      static_cast<double>(note.ns) * kNsInASecond);
  };
  measured.sent_per_second = speed(*there);
  measured.received_per_second = speed(*here);
  measured.bytes_per_second = std::min(measured.sent_per_second, measured.received_per_second);
  if (measured.bytes_per_second == 0) {
    return error(ErrorCode::Unavailable, Reason::None, messages_->name(),
                 ": too little came through to measure by");
  }
  return measured;
}

Status LinkMeter::follow() {
  ARC_RETURN_IF_ERROR(open_streams());
  for (;;) {
    const Result<Note> note = hear();
    if (!note) return note.error();
    if (note->kind == kDone) return {};
    if (note->kind == kPing) {
      ARC_RETURN_IF_ERROR(say({.kind = kPong}));
    } else if (note->kind == kFlood) {
      const Result<Note> came = flood();
      if (!came) return came.error();
      ARC_RETURN_IF_ERROR(say(*came));
    } else {
      return error(ErrorCode::DataLoss, Reason::Corrupt, messages_->name(),
                   ": unknown message of a measurement: ", note->kind);
    }
  }
}

Status LinkMeter::open_streams() {
  flood_ = std::make_unique<Flood>(bulk_.size());
  streams_ = std::make_unique<net::BulkStreams>(*flood_);
  for (net::ConnectionPtr& one : std::exchange(bulk_, {})) {
    if (!one->send_without_copies(options_.without_copies) && options_.without_copies) {
      return error(ErrorCode::FailedPrecondition, Reason::Unsupported, one->name(),
                   ": the kernel cannot send without copies");
    }
    ARC_RETURN_IF_ERROR(streams_->add(std::move(one), {.spin = options_.spin}));
  }
  return {};
}

Status LinkMeter::check_time() const {
  if (stops_.load(std::memory_order_relaxed))
    return error(ErrorCode::Cancelled, Reason::None, "the measurement was stopped");
  if (Clock::now() > options_.deadline)
    return error(ErrorCode::DeadlineExceeded, Reason::Timeout, messages_->name(),
                 ": the measurement did not end in time");
  const std::optional<Error> failure = is_flooded_ ? std::nullopt : streams_->failure();
  if (failure) return *failure;
  return {};
}

Status LinkMeter::say(const Note& note) {
  net::Frame frame;
  frame.header.kind = net::FrameKind::Message;
  frame.payload = std::as_bytes(std::span(&note, 1));
  net::Transfer transfer = 0;
  net::Progress posted = net::Progress::Again;
  while ((posted = messages_->post(frame, transfer)) == net::Progress::Again) {
    (void)messages_->progress(*notes_);
    ARC_RETURN_IF_ERROR(check_time());
  }
  net::Progress sent = posted;
  while (posted == net::Progress::Done &&
         (sent = messages_->test(transfer)) == net::Progress::Again) {
    (void)messages_->progress(*notes_);
    ARC_RETURN_IF_ERROR(check_time());
  }
  if (sent == net::Progress::Failed) return messages_->error();
  return {};
}

Result<LinkMeter::Note> LinkMeter::hear() {
  Clock::time_point moved = Clock::now();
  while (notes_->heard.empty()) {
    const net::Progress progress = messages_->progress(*notes_);
    if (progress == net::Progress::Failed) return messages_->error();
    if (progress == net::Progress::Done) {
      moved = Clock::now();
      continue;
    }
    ARC_RETURN_IF_ERROR(check_time());
    if (Clock::now() - moved < kSpinForNote) continue;
    pollfd wanted{.fd = messages_->descriptor(), .events = POLLIN, .revents = 0};
    (void)::poll(&wanted, 1, 1);
  }
  const Note note = notes_->heard.front();
  notes_->heard.pop_front();
  return note;
}

Result<LinkMeter::Note> LinkMeter::hear(std::uint32_t kind) {
  Result<Note> note = hear();
  if (note && note->kind != kind) {
    return error(ErrorCode::DataLoss, Reason::Corrupt, messages_->name(),
                 ": a measurement's message ", note->kind, " where ", kind, " was to come");
  }
  return note;
}

Status LinkMeter::measure_echoes(LinkSpeed& speed) {
  std::vector<nanoseconds> took;
  const Clock::time_point until = Clock::now() + options_.echoes;
  for (std::size_t i = 0; i < kWarmUp + kMostEchoes; ++i) {
    const Clock::time_point begun = Clock::now();
    if (begun > until && !took.empty()) break;
    ARC_RETURN_IF_ERROR(say({.kind = kPing}));
    const Result<Note> pong = hear(kPong);
    if (!pong) return pong.error();
    if (i >= kWarmUp || begun > until) took.push_back(Clock::now() - begun);
  }
  std::sort(took.begin(), took.end());
  speed.round_trip = took[took.size() / 2];
  speed.round_trip_p99 = took[(took.size() * 99 + 99) / 100 - 1];  // nearest rank
  speed.latency = std::max(speed.round_trip / 2, nanoseconds(1));
  return {};
}

Result<LinkMeter::Note> LinkMeter::flood() {
  const std::vector<std::byte> payload(kPayloadChunks * net::kMostChunkBytes, std::byte{0x5a});
  net::OnLoan on_loan = 0;
  // The payload must not go while the streams may read it: they end first.
  struct Ending {
    LinkMeter& meter;
    net::OnLoan& on_loan;
    ~Ending() {
      if (on_loan.load(std::memory_order_acquire) != 0) meter.streams_.reset();
    }
  } ending{*this, on_loan};
  const auto most_loans = static_cast<std::uint32_t>(streams_->size()) * kLoansPerStream;
  const Clock::time_point until = Clock::now() + options_.flood;
  std::uint64_t sent = 0, chunks = 0;
  while (Clock::now() < until && sent < options_.most_bytes) {
    ARC_RETURN_IF_ERROR(check_time());
    if (on_loan.load(std::memory_order_acquire) >= most_loans) {
      std::this_thread::sleep_for(kPauseOfPoster);
      continue;
    }
    net::Frame frame;
    frame.header.kind = net::FrameKind::Chunk;
    frame.header.seq = chunks;
    frame.payload = std::span(payload).subspan(chunks % kPayloadChunks * net::kMostChunkBytes,
                                               net::kMostChunkBytes);
    on_loan.fetch_add(1, std::memory_order_relaxed);
    const net::Progress posted = streams_->post(frame, on_loan);
    if (posted == net::Progress::Done) {
      ++chunks;
      sent += net::kMostChunkBytes;
      continue;
    }
    on_loan.fetch_sub(1, std::memory_order_relaxed);
    if (posted == net::Progress::Failed) return *streams_->failure();
    std::this_thread::sleep_for(kPauseOfPoster);
  }
  while (on_loan.load(std::memory_order_acquire) != 0) {
    ARC_RETURN_IF_ERROR(check_time());
    std::this_thread::sleep_for(kPauseOfPoster);
  }
  ARC_RETURN_IF_ERROR(say({.kind = kSent, .bytes = sent}));
  const Result<Note> theirs = hear(kSent);
  if (!theirs) return theirs.error();
  while (flood_->received().bytes < theirs->bytes) {
    ARC_RETURN_IF_ERROR(check_time());
    std::this_thread::sleep_for(kPauseOfPoster);
  }
  is_flooded_ = true;
  return flood_->received();
}

}  // namespace arcomm

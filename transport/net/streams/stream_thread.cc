#include "transport/net/streams/stream_thread.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "transport/device/pause.h"
#include "transport/net/goodbye.h"

namespace arcomm::net {
namespace {

using Clock = std::chrono::steady_clock;

// A sleeper looks again after this long, whatever it heard.
constexpr int kSleepMs = 1000;
// Where the receiver has no room: nobody need tell when there is some.
constexpr int kHeldSleepMs = 1;
constexpr std::uint64_t kLookNs = 100'000'000;

std::uint64_t now_ns() {
  return LostTime::ns_of(Clock::now());
}

void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) {
  counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

}  // namespace

Result<std::unique_ptr<StreamThread>> StreamThread::start(ConnectionPtr connection,
                                                          BulkQueue& queue, Receiver& receiver,
                                                          Owner& owner, StreamOptions options) {
  std::unique_ptr<StreamThread> made(
      new StreamThread(std::move(connection), queue, receiver, owner, options));
  made->doorbell_ = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!made->doorbell_)
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "no descriptor for the doorbell of ", made->name_);
  try {
    made->thread_ = std::thread([stream = made.get()] { stream->run(); });
  } catch (const std::system_error& failure) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "no thread for ", made->name_,
                 ": ", failure.what());
  }
  pthread_setname_np(made->thread_.native_handle(), "arcomm-stream");
  if (options.cpu >= 0) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    if (options.cpu < CPU_SETSIZE) CPU_SET(static_cast<unsigned>(options.cpu), &cpus);
    if (pthread_setaffinity_np(made->thread_.native_handle(), sizeof cpus, &cpus) != 0) {
      made->says_goodbye_.store(false, std::memory_order_relaxed);  // nobody waits for the peer
      return error(ErrorCode::InvalidArgument, Reason::BadConfig, "this process may not use CPU ",
                   options.cpu, " for ", made->name_);
    }
  }
  return made;
}

StreamThread::StreamThread(ConnectionPtr connection, BulkQueue& queue, Receiver& receiver,
                           Owner& owner, StreamOptions options)
    : connection_(std::move(connection)),
      name_(connection_->name()),
      queue_(queue),
      owner_(owner),
      options_(options),
      receiver_(receiver) {}

StreamThread::~StreamThread() {
  stops_.store(true, std::memory_order_release);
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  // It cannot fail but for a counter that is full, and then the bell has rung.
  (void)!::write(doorbell_.get(), &one, sizeof one);
  thread_.join();
}

// The poster pushes and then looks whether somebody sleeps; the sleeper says so and then looks at
// the queue. Both are sequentially consistent, by a fence in between: at least one sees the other.
bool StreamThread::wake() {
  if (!sleeps_.load(std::memory_order_relaxed) || !sleeps_.exchange(false)) return false;
  const std::uint64_t one = 1;
  (void)!::write(doorbell_.get(), &one, sizeof one);
  return true;
}

StreamCounters StreamThread::counters() const {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  const std::scoped_lock lock(looking_);
  return {.name = name_,
          .sent_bytes = sent_bytes_.load(kRelaxed),
          .received_bytes = receiver_.bytes.load(kRelaxed),
          .spun_ns = spun_ns_.load(kRelaxed),
          .slept_ns = slept_ns_.load(kRelaxed),
          .link = link_};
}

void StreamThread::run() {
  std::uint32_t busy_rounds = 0;
  while (!stops_.load(std::memory_order_acquire)) {
    bool moved = take_frame();
    const Progress progress = connection_->progress(receiver_);
    if (progress == Progress::Failed || connection_->is_open() == Progress::Failed) {
      owner_.stream_ended(connection_->error());
      break;
    }
    const bool gave_back = give_back_sent();
    const bool has_news = progress == Progress::Done || gave_back;
    if (has_news) owner_.stream_moved();
    moved |= has_news;
    if (moved) {
      idle_since_ns_ = 0;
      if (++busy_rounds % 1024 == 0) look_at_link(now_ns());
    } else {
      wait();
    }
  }
  if (says_goodbye_.load(std::memory_order_relaxed))
    say_goodbye(*connection_, receiver_, "its streams are taken down");
  connection_->abandon(receiver_);
  // Its socket is closed: nobody reads the payloads any more.
  connection_.reset();
  give_back_all();
}

bool StreamThread::take_frame() {
  if (held_count_ == kMostHeld || connection_->is_open() != Progress::Done) return false;
  BulkFrame next;
  if (!queue_.pop(next)) return false;
  Held& held = held_[held_count_++];
  held = {.transfer = 0,
          .on_loan = next.on_loan,
          .bytes = sizeof(FrameHeader) + next.frame.payload.size()};
  // There is room for it: the connection holds more than kMostHeld. A connection that fails just
  // now gives it back with the others.
  return connection_->post(next.frame, held.transfer) == Progress::Done;
}

bool StreamThread::give_back_sent() {
  std::size_t sent = 0;
  while (sent < held_count_ && connection_->test(held_[sent].transfer) == Progress::Done) {
    add(sent_bytes_, held_[sent].bytes);
    held_[sent++].on_loan->fetch_sub(1, std::memory_order_release);
  }
  if (sent == 0) return false;
  std::move(held_.begin() + static_cast<std::ptrdiff_t>(sent),
            held_.begin() + static_cast<std::ptrdiff_t>(held_count_), held_.begin());
  held_count_ -= sent;
  return true;
}

void StreamThread::give_back_all() {
  for (std::size_t i = 0; i < held_count_; ++i)
    held_[i].on_loan->fetch_sub(1, std::memory_order_release);
  held_count_ = 0;
}

void StreamThread::look_at_link(std::uint64_t now_ns) {
  if (now_ns < next_look_ns_) return;
  next_look_ns_ = now_ns + kLookNs;
  const LinkStatistics link = connection_->statistics();
  const std::scoped_lock lock(looking_);
  link_ = link;
}

void StreamThread::wait() {
  const std::uint64_t from = now_ns();
  look_at_link(from);
  if (idle_since_ns_ == 0) idle_since_ns_ = waited_until_ns_ = from;
  add(spun_ns_, from - waited_until_ns_);  // a look in vain
  const auto spin = static_cast<std::uint64_t>(options_.spin.count());
  if (from - idle_since_ns_ >= spin || lost_time_.sleeps(from)) {
    waited_until_ns_ = sleep(from);
    return;
  }
  for (int i = 0; i < 16; ++i) pause_briefly();
  waited_until_ns_ = now_ns();
  lost_time_.paused(from, waited_until_ns_);
  add(spun_ns_, waited_until_ns_ - from);
}

std::uint64_t StreamThread::sleep(std::uint64_t from_ns) {
  std::uint64_t until = from_ns;
  // A stream that could not take a frame is not to be woken for one: another stream is.
  const bool may_take = held_count_ < kMostHeld && connection_->is_open() == Progress::Done;
  sleeps_.store(may_take);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool has_work = may_take && !queue_.empty();
  if (!has_work && !stops_.load(std::memory_order_acquire)) {
    const bool is_held = !connection_->wants_to_receive();
    const int events = (is_held ? 0 : POLLIN) | (connection_->wants_to_send() ? POLLOUT : 0);
    std::array<pollfd, 2> sources{
        // Without events poll() tells of errors again and again, which nobody looks at before there
        // is room.
        pollfd{.fd = events == 0 ? -1 : connection_->descriptor(),
               .events = static_cast<short>(events),
               .revents = 0},
        pollfd{.fd = doorbell_.get(), .events = POLLIN, .revents = 0}};
    (void)poll(sources.data(), sources.size(), is_held ? kHeldSleepMs : kSleepMs);
    until = now_ns();
    add(slept_ns_, until - from_ns);
    std::uint64_t rung = 0;
    if (sources[1].revents != 0) (void)!::read(doorbell_.get(), &rung, sizeof rung);
  }
  sleeps_.store(false);
  return until;
}

}  // namespace arcomm::net

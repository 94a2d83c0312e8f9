#include "client/src/host/in_call/in_call_path.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "client/src/host/in_call/in_call_meeting.h"
#include "client/src/host/in_call/shared_cache.h"
#include "client/src/host/member.h"
#include "client/src/session/session.h"
#include "proto/ring/doorbell.h"
#include "transport/device/pause.h"

namespace arcomm::client {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = Deadline::Clock;
using Seen = InCallMeeting<>::Seen;

// Looks before the clock is read: the others mostly come within these.
constexpr int kFirstLooks = 64;
// As long as whoever waits for the worker does (waiting.cc).
constexpr microseconds kSpinForPeers{20}, kYieldForPeers{300};
// A rank that is later than this has the worker name it (NodeAgreement::kWaitingNs).
constexpr milliseconds kPatience{10};
// Of a short deadline the worker gets this part, to name who was missing.
constexpr int kPartForWorker = 2;

bool is_one_core() {
  static const bool one = std::thread::hardware_concurrency() < 2;
  return one;
}

bool shares_a_cache() {
  static const bool shares = cores_share_a_cache("");
  return shares;
}

}  // namespace

Result<std::uint64_t> most_in_call_bytes_asked() {
  const char* const value = std::getenv("ARCOMM_IN_CALL_BYTES");
  const std::string_view word = value == nullptr ? "" : value;
  if (word.empty()) return std::uint64_t{0};
  std::uint64_t bytes = 0;
  const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), bytes);
  if (failed == std::errc() && end == word.data() + word.size() && bytes != 0 &&
      bytes <= kMaxInCallBytes)
    return bytes;
  return error(ErrorCode::InvalidArgument, Reason::BadValue, "ARCOMM_IN_CALL_BYTES is \"", word,
               "\": a number of bytes from 1 to ", kMaxInCallBytes, " expected");
}

Result<std::unique_ptr<InCallPath>> InCallPath::open(const UniqueFd& memory, Rank rank,
                                                     const InCallLayout& layout) {
  const std::uint32_t ranks = layout.ranks();
  if (ranks > kMaxInCallRanks || rank < 0 || static_cast<std::uint32_t>(rank) >= ranks)
    return error(ErrorCode::Internal, Reason::Corrupt, "the daemon gave rank ", rank, " of ", ranks,
                 " memory for calls to meet in, which there is for up to ", kMaxInCallRanks);
  Result<SharedMapping> mapped = map_in_call_memory(memory.get(), layout.bytes());
  if (!mapped) return std::move(mapped).error();
  return std::unique_ptr<InCallPath>(
      new InCallPath(std::move(*mapped), static_cast<std::uint32_t>(rank), layout));
}

InCallPath::InCallPath(SharedMapping memory, std::uint32_t rank, const InCallLayout& layout)
    : memory_(std::move(memory)),
      rank_(rank),
      ranks_(layout.ranks()),
      parts_(memory_.data(), layout, rank, !shares_a_cache()) {}

std::optional<Status> InCallPath::run(Member& member, const CollectiveCall& call,
                                      DeadlineOnDemand& deadline) {
  Turn held(turn_, std::try_to_lock);
  if (!held && !held.try_lock_until(deadline.get().when())) {
    member.session->submission().give_up(member);
    member.session->tell_aborts();
    return late_for_turn();
  }
  // What is under way comes first: this may be to work on its result.
  if (member.active.load(std::memory_order_acquire) != 0 ||
      member.failed.load(std::memory_order_acquire))
    return std::nullopt;
  member.session->check_now_and_then();
  if (!member.session->submission().is_open()) return std::nullopt;
  const auto turn = static_cast<std::uint32_t>(run_here_ % 2);
  Meeting meeting(control(), rank_, ranks_, next_number(), turn);
  if (meeting.is_contested()) return std::nullopt;
  parts_.put(call, turn);
  meeting.come(call);
  wake_others();
  if (!wait_for_all(member, meeting, deadline)) {
    const InCallFate fate = meeting.contest();
    wake_others();
    if (fate == InCallFate::Worker) return std::nullopt;
  } else if (meeting.settle() == InCallFate::Worker) {
    return std::nullopt;
  }
  parts_.combine(call, turn);
  ++run_here_;
  own().operations.store(run_here_, std::memory_order_relaxed);
  own().bytes.store(own().bytes.load(std::memory_order_relaxed) + call.send_bytes(),
                    std::memory_order_relaxed);
  return Status();
}

bool InCallPath::wait_for_all(const Member& member, Meeting& meeting, DeadlineOnDemand& deadline) {
  Submission& submission = member.session->submission();
  Seen seen = meeting.look();
  if (seen != Seen::NotAll) return seen == Seen::All;
  const bool spins =
      !is_one_core() && !submission.is_oversubscribed_by_clients() && spin_worth_.spins();
  for (int i = 0; spins && seen == Seen::NotAll && i < kFirstLooks; ++i) {
    pause_briefly();
    seen = meeting.look();
  }
  if (seen != Seen::NotAll) {
    spin_worth_.spun(true);
    return seen == Seen::All;
  }

  const Clock::duration left = deadline.get().left();
  const auto start = Clock::now();
  const auto until = start + std::min<Clock::duration>(kPatience, left / kPartForWorker);
  const auto spin_until = std::min(until, start + kSpinForPeers);
  const auto yield_until = start + kYieldForPeers;
  auto now = start;
  const auto look_again = [&] {
    const auto after = Clock::now();
    lost_time_.paused(LostTime::ns_of(now), LostTime::ns_of(after));
    now = after;
    seen = meeting.look();
  };
  if (spins) {
    while (seen == Seen::NotAll && now < spin_until) {
      for (int i = 0; i < 8; ++i) pause_briefly();
      look_again();
    }
    spin_worth_.spun(seen != Seen::NotAll);
  }
  while (seen == Seen::NotAll && now < until) {
    if (now < yield_until && !lost_time_.sleeps(LostTime::ns_of(now))) {
      ::sched_yield();
      look_again();
    } else {
      // What the session's threads wait for needs somebody to work at it.
      submission.work([&] { return Clock::now() >= until; });
      seen = sleep(meeting, until - now);
      now = Clock::now();
    }
  }
  return seen == Seen::All;
}

Seen InCallPath::sleep(Meeting& meeting, std::chrono::nanoseconds most) {
  ring::FutexDoorbell bell(own().sleeps);
  bell.arm();
  Seen seen = meeting.look();
  if (seen == Seen::NotAll) {
    bell.sleep(most);
    seen = meeting.look();
  }
  bell.disarm();
  return seen;
}

void InCallPath::wake_others() {
  ring::order_published();
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    if (rank != rank_) ring::FutexDoorbell(control().ranks[rank].sleeps).ring_in_order();
  }
}

void InCallPath::sent_to_worker() {
  at_worker_.store(at_worker_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  own().by_worker.store(next_number() - 1, std::memory_order_release);
  wake_others();
}

}  // namespace arcomm::client

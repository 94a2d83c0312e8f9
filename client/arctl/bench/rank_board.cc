#include "client/arctl/bench/rank_board.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>
#include <utility>

#include "proto/text.h"
#include "transport/device/lost_time.h"

namespace arcomm::arctl {
namespace {

constexpr std::uint32_t kBoardMagic = 0x44424152;  // "RABD"

constexpr std::chrono::milliseconds kAwake{1};  // ranks of small operations meet sooner

std::size_t board_bytes() {
  return sizeof(BoardPage) + sizeof(double) * kMaxSamples * kMaxRanks;
}

Result<SharedMapping> map_board(int fd) {
  return SharedMapping::map(fd, {.length_bytes = board_bytes(), .what = "the rank board"});
}

}  // namespace

Result<RankBoard> RankBoard::create(int ranks) {
  // Not close-on-exec: the rank processes inherit it.
  UniqueFd fd(::memfd_create("arctl-ranks", 0));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(board_bytes())) != 0) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "cannot create the ranks' shared memory: ", std::strerror(errno));
  }
  Result<SharedMapping> mapping = map_board(fd.get());
  if (!mapping) return std::move(mapping).error();
  auto* page = new (mapping->data()) BoardPage{};
  page->magic = kBoardMagic;
  page->ranks = ranks;
  return RankBoard(std::move(fd), std::move(*mapping));
}

Result<RankBoard> RankBoard::open(UniqueFd fd) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || info.st_size != static_cast<off_t>(board_bytes())) {
    return error(
        ErrorCode::InvalidArgument, Reason::BadValue, "descriptor ", fd.get(),
        " is not a rank board: `arctl rank` is started by `arctl bench` and `arctl check` only");
  }
  Result<SharedMapping> mapping = map_board(fd.get());
  if (!mapping) return std::move(mapping).error();
  return RankBoard(std::move(fd), std::move(*mapping));
}

Status status_of(arcResult_t result) {
  if (result == arcSuccess) return {};
  arcErrorInfo_t info{};
  info.struct_size = sizeof(info);
  arcGetLastErrorInfo(&info);
  Error failure = error(error_code_from(static_cast<unsigned>(result)),
                        reason_from(static_cast<unsigned>(info.reason)), arcGetLastError(nullptr));
  failure.rank = info.rank;
  return failure;
}

double* RankBoard::samples_of(Rank rank) const {
  auto* first = reinterpret_cast<double*>(mapping_.data() + sizeof(BoardPage));
  return first + static_cast<std::size_t>(rank) * kMaxSamples;
}

Status RankBoard::wait_change(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                              Deadline deadline) const {
  while (word.load(std::memory_order_acquire) == seen) {
    if (page().failed.load(std::memory_order_acquire) != 0) {
      return error(ErrorCode::Aborted, Reason::RemoteAborted, "another rank failed");
    }
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds(0)) {
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout,
                   "the other ranks did not get here in time");
    }
    const auto nap = std::min<std::chrono::nanoseconds>(left, std::chrono::milliseconds(50));
    const timespec span{0, static_cast<long>(nap.count())};
    ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &span, nullptr, 0);
  }
  return {};
}

void RankBoard::wake(std::atomic<std::uint32_t>& word) const {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Status RankBoard::meet(Deadline deadline) const {
  BoardPage& board = page();
  const std::uint32_t turn = board.turn.load(std::memory_order_acquire);
  if (board.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 ==
      static_cast<std::uint32_t>(board.ranks)) {
    board.arrived.store(0, std::memory_order_relaxed);
    board.turn.store(turn + 1, std::memory_order_release);  // pairs with wait_change's acquire
    wake(board.turn);
    return {};
  }
  // A rank that sleeps here starts the next round wherever the scheduler wakes it, often all on one
  // core. But one that yields to other processes is late for it by their time slices.
  static LostTime lost_time;
  auto now = std::chrono::steady_clock::now();
  const Deadline awake_until = std::min(deadline, now + kAwake);
  while (board.turn.load(std::memory_order_acquire) == turn && now < awake_until &&
         !lost_time.sleeps(LostTime::ns_of(now))) {
    const auto before = now;
    ::sched_yield();
    now = std::chrono::steady_clock::now();
    lost_time.paused(LostTime::ns_of(before), LostTime::ns_of(now));
  }
  return wait_change(board.turn, turn, deadline);
}

Status RankBoard::serve(Rank rank, const std::function<Status(const BenchCase&)>& run) const {
  for (std::uint32_t done = 0;; ++done) {
    // The parent may think for long between cases; it kills its ranks when it gives up.
    ARC_RETURN_IF_ERROR(wait_change(page().announced, done,
                                    std::chrono::steady_clock::now() + std::chrono::hours(24)));
    if (page().announced.load(std::memory_order_acquire) == kNoMoreCases) return {};
    RankSlot& slot = page().slots[rank];
    slot.wrong = 0;
    slot.checked_bytes = 0;
    slot.samples = 0;
    slot.refused = 0;
    slot.accuracy = {};
    slot.steps.store(0, std::memory_order_relaxed);
    slot.note[0] = '\0';
    ARC_RETURN_IF_ERROR(run(page().current));
    page().reported.fetch_add(1, std::memory_order_acq_rel);
    wake(page().reported);
  }
}

void RankBoard::beat(Rank rank) const {
  page().slots[rank].heartbeat.fetch_add(1, std::memory_order_relaxed);
}

void RankBoard::sample(Rank rank, double us) const {
  RankSlot& slot = page().slots[rank];
  if (slot.samples < kMaxSamples) samples_of(rank)[slot.samples++] = us;
}

void RankBoard::note(Rank rank, std::string_view text) const {
  RankSlot& slot = page().slots[rank];
  slot.note[text.copy(slot.note, sizeof(slot.note) - 1)] = '\0';
}

void RankBoard::fail(Rank rank, const Error& failure) const {
  RankSlot& slot = page().slots[rank];
  slot.code = static_cast<std::uint32_t>(failure.code);
  slot.reason = static_cast<std::uint32_t>(failure.reason);
  const std::size_t length = cut_text(failure.message, sizeof(slot.message) - 1).size();
  std::memcpy(slot.message, failure.message.data(), length);
  slot.message[length] = '\0';
  page().failed.fetch_add(1, std::memory_order_acq_rel);
  wake(page().turn);
  wake(page().announced);
  wake(page().reported);
}

}  // namespace arcomm::arctl

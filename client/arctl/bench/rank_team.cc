#include "client/arctl/bench/rank_team.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

extern char** environ;

namespace arcomm::arctl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kIdBytesShown = 8;  // as CommunicatorStatus.id says

// A failure that only echoes another rank's.
bool is_echo(Reason reason) {
  return reason == Reason::RemoteDied || reason == Reason::RemoteAborted ||
         reason == Reason::Revoked;
}

Error death_of(std::size_t rank, pid_t pid, int how, const char* when) {
  if (WIFSIGNALED(how)) {
    return error(ErrorCode::Aborted, Reason::RemoteDied, "rank ", rank, " (pid ", pid,
                 ") was killed by signal ", WTERMSIG(how), when);
  }
  return error(ErrorCode::Aborted, Reason::RemoteDied, "rank ", rank, " (pid ", pid,
               ") exited with status ", WEXITSTATUS(how), when);
}

}  // namespace

Result<RankTeam> RankTeam::start(const TeamOptions& options) {
  Result<RankBoard> board = RankBoard::create(options.ranks);
  if (!board) return std::move(board).error();
  BoardPage& page = board->page();
  page.buffer_bytes = options.buffer_bytes;
  page.memory = options.memory;
  page.device = options.device;
  std::copy_n(options.gpus.begin(), std::min<std::size_t>(options.gpus.size(), kMaxRanks),
              page.gpus);
  if (options.nccl.size() >= sizeof(page.nccl)) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "the path of NCCL has ",
                 options.nccl.size(), " characters; at most ", sizeof(page.nccl) - 1, " are taken");
  }
  options.nccl.copy(page.nccl, options.nccl.size());
  if (options.data_file.size() >= sizeof(page.data_file)) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "the path of the data has ",
                 options.data_file.size(), " characters; at most ", sizeof(page.data_file) - 1,
                 " are taken");
  }
  options.data_file.copy(page.data_file, options.data_file.size());
  page.timeout_ms = static_cast<std::uint64_t>(options.timeout.count());
  page.most_in_call_bytes = options.most_in_call_bytes;
  if (arcGetUniqueId(&page.unique_id) != arcSuccess) {
    return error(ErrorCode::Internal, Reason::Bug,
                 "cannot make a unique id: ", arcGetLastError(nullptr));
  }
  RankTeam team(std::move(*board), options);
  ARC_RETURN_IF_ERROR(team.spawn());
  return team;
}

// posix_spawn and not fork: this process may hold gRPC threads.
Status RankTeam::spawn() {
  const std::string fd = std::to_string(board_.fd());
  for (int rank = 0; rank < options_.ranks; ++rank) {
    std::vector<std::string> words = {"arctl",    "rank",
                                      "--board",  fd,
                                      "--rank",   std::to_string(rank),
                                      "--parent", std::to_string(::getpid())};
    if (!options_.runtime_dir.empty()) {
      words.insert(words.end(), {"--runtime-dir", options_.runtime_dir});
    }
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t pid = 0;
    const int failure =
        ::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ);
    if (failure != 0) {
      return arcomm::error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "cannot start rank ",
                           rank, ": ", std::strerror(failure));
    }
    pids_.push_back(pid);
  }
  return {};
}

RankTeam::~RankTeam() {
  if (pids_.empty()) return;
  for (const pid_t pid : pids_) {
    if (pid != 0) ::kill(pid, SIGKILL);
  }
  reap_all(milliseconds(5000));
}

Result<Measured> RankTeam::run(const BenchCase& what) {
  if (what.samples() > kMaxSamples) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "a case may have ", kMaxSamples,
                 " samples, this one has ", what.samples(), ": ask for fewer iterations or rounds");
  }
  BoardPage& page = board_.page();
  page.current = what;
  ++cases_;
  page.announced.store(cases_, std::memory_order_release);  // pairs with wait_change's acquire
  board_.wake(page.announced);
  // A rank whose operation is late hears of it by its own deadline; this one is for a rank that is
  // stuck itself.
  milliseconds patience = options_.timeout + milliseconds(5000);
  if (what.kind == CaseKind::Open || what.kind == CaseKind::Survey)
    patience = std::max(patience, kOpensWithin);
  ARC_RETURN_IF_ERROR(
      watch_until_reported(cases_ * static_cast<std::uint32_t>(options_.ranks), patience));

  Measured measured;
  measured.seen = page.slots[0].seen;
  measured.accuracy = page.slots[0].accuracy;
  measured.samples_us.assign(page.slots[0].samples, 0);
  for (Rank rank = 0; rank < options_.ranks; ++rank) {
    const double* samples = board_.samples_of(rank);
    for (std::size_t i = 0; i < measured.samples_us.size(); ++i) {
      measured.samples_us[i] = std::max(measured.samples_us[i], samples[i]);
    }
    const RankSlot& slot = page.slots[rank];
    measured.wrong += slot.wrong;
    measured.results_differ |= slot.accuracy.digest != measured.accuracy.digest;
    measured.checked_bytes =
        rank == 0 ? slot.checked_bytes : std::min(measured.checked_bytes, slot.checked_bytes);
    const bool first_refusal = slot.refused != 0 && !measured.refused;
    if (first_refusal || measured.note.empty()) measured.note = slot.note;
    measured.refused = measured.refused || slot.refused != 0;
  }
  return measured;
}

Status RankTeam::watch_until_reported(std::uint32_t target, milliseconds patience) {
  BoardPage& page = board_.page();
  auto deadline = Clock::now() + patience;
  std::uint64_t heartbeats_seen = heartbeats();
  for (;;) {
    const std::uint32_t reported = page.reported.load(std::memory_order_acquire);
    if (reported == target) return {};
    if (page.failed.load(std::memory_order_acquire) != 0) {
      std::this_thread::sleep_for(milliseconds(100));  // the cause may report after its echo
      return first_failure();
    }
    // The outcome is the loop's to judge; the nap only bounds how late a death is noticed.
    [[maybe_unused]] const Status woken =
        board_.wait_change(page.reported, reported, Clock::now() + milliseconds(100));
    ARC_RETURN_IF_ERROR(look_for_dead());
    if (const std::uint64_t seen = heartbeats(); seen != heartbeats_seen) {
      heartbeats_seen = seen;
      deadline = Clock::now() + patience;
    }
    if (Clock::now() > deadline) {
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "no rank moved for ",
                   patience.count(), " ms: see `arctl diagnose`");
    }
  }
}

Error RankTeam::first_failure() const {
  const RankSlot* chosen = nullptr;
  Rank chosen_rank = kNoRank;
  for (Rank rank = 0; rank < options_.ranks; ++rank) {
    const RankSlot& slot = board_.page().slots[rank];
    if (slot.code == 0) continue;
    if (chosen == nullptr ||
        (is_echo(reason_from(chosen->reason)) && !is_echo(reason_from(slot.reason)))) {
      chosen = &slot;
      chosen_rank = rank;
    }
  }
  if (chosen == nullptr)
    return error(ErrorCode::Internal, Reason::Bug, "a rank failed and did not say why");
  Error failure = error(error_code_from(chosen->code), reason_from(chosen->reason), "rank ",
                        chosen_rank, ": ", chosen->message);
  failure.rank = chosen_rank;
  return failure;
}

Status RankTeam::look_for_dead() {
  for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
    int how = 0;
    if (pids_[rank] == 0 || ::waitpid(pids_[rank], &how, WNOHANG) != pids_[rank]) continue;
    const pid_t pid = pids_[rank];
    pids_[rank] = 0;
    if (board_.page().failed.load(std::memory_order_acquire) != 0) return first_failure();
    return death_of(rank, pid, how, " before it was done");
  }
  return {};
}

std::uint64_t RankTeam::heartbeats() const {
  std::uint64_t sum = 0;
  for (Rank rank = 0; rank < options_.ranks; ++rank) {
    sum += board_.page().slots[rank].heartbeat.load(std::memory_order_relaxed);
  }
  return sum;
}

std::string RankTeam::communicator() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char each : std::string_view(board_.page().unique_id.internal, kIdBytesShown)) {
    const auto byte = static_cast<unsigned char>(each);
    text += {kDigits[byte >> 4], kDigits[byte & 0xf]};
  }
  return text;
}

Status RankTeam::finish() {
  BoardPage& page = board_.page();
  page.announced.store(kNoMoreCases, std::memory_order_release);
  board_.wake(page.announced);
  const bool gone = reap_all(std::chrono::duration_cast<milliseconds>(options_.timeout));
  if (page.failed.load(std::memory_order_acquire) != 0) return first_failure();
  if (!gone) {
    return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "the ranks did not leave within ",
                 options_.timeout.count(), " ms");
  }
  return std::move(ended_);
}

bool RankTeam::reap_all(milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    bool all = true;
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      pid_t& pid = pids_[rank];
      int how = 0;
      if (pid != 0 && ::waitpid(pid, &how, WNOHANG) == pid) {
        if (how != 0 && ended_.ok()) ended_ = death_of(rank, pid, how, " when it left");
        pid = 0;
      }
      all = all && pid == 0;
    }
    if (all || Clock::now() > deadline) return all;
    std::this_thread::sleep_for(milliseconds(2));
  }
}

}  // namespace arcomm::arctl

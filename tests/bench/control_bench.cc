// What control costs against a running daemon: attaching and forming a communicator of 4 ranks, and
// how soon the daemon has let go of a client that was killed. Prints text and, last, one JSON line.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "client/arctl/admin.h"
#include "client/arctl/bench/rank_board.h"
#include "client/include/arclient.h"

namespace arcomm::bench {
namespace {

using arctl::RankBoard;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kRanks = 4;
constexpr int kCycles = 50;
constexpr int kKills = 30;
constexpr auto kPatience = milliseconds(10'000);

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double percentile(std::vector<double> samples, double fraction) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  return samples[static_cast<std::size_t>(fraction * static_cast<double>(samples.size() - 1))];
}

// Attaches, joins, leaves and detaches again and again; the time up to the communicator goes to the
// board.
int cycle(const RankBoard& board, Rank rank, const std::vector<arcUniqueId>& ids) {
  for (int i = 0; i < kCycles; ++i) {
    if (!board.meet(Clock::now() + kPatience).ok()) return 1;
    const auto start = Clock::now();
    arcComm_t comm = nullptr;
    if (arcInit(nullptr) != arcSuccess ||
        arcCommInitRank(&comm, kRanks, ids[static_cast<std::size_t>(i)], rank) != arcSuccess) {
      std::fprintf(stderr, "control_bench: rank %d: %s\n", rank, arcGetLastError(nullptr));
      board.fail(rank, error(ErrorCode::Internal, Reason::None, "cannot attach"));
      return 1;
    }
    board.samples_of(rank)[i] = us_since(start);
    arcCommDestroy(comm);
    arcFinalize();
  }
  return 0;
}

std::vector<double> attach_times() {
  std::vector<double> slowest;
  Result<RankBoard> board = RankBoard::create(kRanks);
  if (!board) return slowest;
  std::vector<arcUniqueId> ids(kCycles);
  for (arcUniqueId& id : ids) arcGetUniqueId(&id);
  std::vector<pid_t> ranks;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    const pid_t pid = ::fork();  // before this process attaches
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::_Exit(cycle(*board, rank, ids));
    }
    ranks.push_back(pid);
  }
  bool all = true;
  for (const pid_t pid : ranks) {
    int how = 0;
    ::waitpid(pid, &how, 0);
    all = all && how == 0;
  }
  if (!all) return slowest;
  slowest.assign(kCycles, 0);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    for (std::size_t i = 0; i < slowest.size(); ++i)
      slowest[i] = std::max(slowest[i], board->samples_of(rank)[i]);
  }
  return slowest;
}

// A client that holds a buffer and waits to be killed. Says by a byte that it is attached.
[[noreturn]] void hold(int ready) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  void* memory = nullptr;
  if (arcInit(nullptr) != arcSuccess || arcMemAlloc(&memory, 1 << 20) != arcSuccess) std::_Exit(1);
  std::memset(memory, 1, 1 << 20);
  [[maybe_unused]] const ssize_t told = ::write(ready, "x", 1);
  for (;;) ::pause();
}

// Asking takes about 100 us itself: the figure is that much too high at worst.
std::vector<double> reap_times() {
  std::vector<double> times;
  Result<arctl::Admin> admin = arctl::Admin::open("", kPatience);
  if (!admin) return times;
  for (int i = 0; i < kKills; ++i) {
    int ends[2];
    if (::pipe(ends) != 0) return times;
    const pid_t pid = ::fork();
    if (pid == 0) hold(ends[1]);
    ::close(ends[1]);
    char byte;
    const bool attached = ::read(ends[0], &byte, 1) == 1;
    ::close(ends[0]);
    const auto sessions = [&] {
      Result<::arcommd::v1::StatusReply> reply = admin->status();
      return reply ? reply->sessions() : ~0ull;
    };
    const auto before = sessions();
    const auto start = Clock::now();
    ::kill(pid, SIGKILL);
    while (attached && sessions() >= before && Clock::now() - start < kPatience) {
    }
    if (attached) times.push_back(us_since(start));
    ::waitpid(pid, nullptr, 0);
  }
  return times;
}

int run() {
  const std::vector<double> attach = attach_times();
  const std::vector<double> reap = reap_times();
  if (attach.empty() || reap.empty()) {
    std::fprintf(stderr,
                 "control_bench: no figures; is a daemon running in $ARCOMM_RUNTIME_DIR?\n");
    return 1;
  }
  std::printf("                                         p50 ms    p99 ms\n");
  std::printf("attach and communicator of 4 ranks     %8.2f  %8.2f   target 10\n",
              percentile(attach, 0.5) / 1e3, percentile(attach, 0.99) / 1e3);
  std::printf("killed client let go of                %8.2f  %8.2f   target 10\n",
              percentile(reap, 0.5) / 1e3, percentile(reap, 0.99) / 1e3);
  std::printf(
      "{\"bench\":\"control\",\"attach_p50_us\":%.1f,\"attach_p99_us\":%.1f,\"reap_p50_us\":%.1f,"
      "\"reap_p99_us\":%.1f}\n",
      percentile(attach, 0.5), percentile(attach, 0.99), percentile(reap, 0.5),
      percentile(reap, 0.99));
  return 0;
}

}  // namespace
}  // namespace arcomm::bench

int main() {
  return arcomm::bench::run();
}

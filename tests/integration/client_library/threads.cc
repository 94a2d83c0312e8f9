// Several threads of a rank: their calls on one communicator and on different ones, and what
// becomes of them when some end by their deadline.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/host/reduce_in_call.h"
#include "tests/integration/client_library/client_library.h"

namespace arcomm::support {
namespace {

constexpr std::size_t kRanks = 3, kThreads = 2;
// The calls of a phase in which all come do not end by it, also on a busy machine.
constexpr milliseconds kLong{4'000};

// One call of one thread. Each rank sends the call's number in elements of its own, and zeros in
// the others', so that every rank's result tells which calls of the ranks have met in it.
struct Called {
  using Met = std::array<std::uint64_t, kRanks>;
  std::uint64_t number = 0;
  arcResult_t code = arcSuccess;
  arcErrorInfo_t why{};
  milliseconds took{};
  Met met{};
};

class Caller {
 public:
  Caller(arcComm_t comm, std::size_t rank, std::uint64_t first_number, std::size_t count)
      : comm_(comm), rank_(rank), next_number_(first_number), send_(count), recv_(count) {}

  // Those that fail as well: the next one is told why at once.
  std::vector<Called> call(std::size_t times) {
    std::vector<Called> calls;
    for (std::size_t i = 0; i < times; ++i) calls.push_back(call_once(i % 5 == 4));
    return calls;
  }

 private:
  // What waits for a ticket is the worker's, and its peers' with it.
  Called call_once(bool by_ticket) {
    Called called{.number = next_number_++};
    for (std::size_t i = 0; i < send_.size(); ++i)
      send_[i] = i % kRanks == rank_ ? called.number : 0;
    std::ranges::fill(recv_, ~std::uint64_t{0});
    const auto begin = Clock::now();
    if (by_ticket) {
      arcTicket_t ticket = 0;
      called.code = arcAllReduceAsync(send_.data(), recv_.data(), send_.size(), arcUint64, arcSum,
                                      comm_, nullptr, &ticket);
      if (called.code == arcSuccess) called.code = arcWait(ticket, 0);
    } else {
      called.code =
          arcAllReduce(send_.data(), recv_.data(), send_.size(), arcUint64, arcSum, comm_, nullptr);
    }
    called.took = since(begin);
    if (called.code != arcSuccess) {
      called.why = last();
      EXPECT_STRNE(arcGetLastError(nullptr), "");
      return called;
    }
    for (std::size_t rank = 0; rank < kRanks; ++rank) called.met[rank] = recv_[rank];
    for (std::size_t i = 0; i < recv_.size(); ++i) {
      if (recv_[i] == called.met[i % kRanks]) continue;
      ADD_FAILURE() << "element " << i << " is of another call: " << recv_[i];
      break;
    }
    return called;
  }

  const arcComm_t comm_;
  const std::size_t rank_;
  std::uint64_t next_number_;
  std::vector<std::uint64_t> send_, recv_;
};

// All calls of a communicator, by rank.
using Calls = std::array<std::vector<Called>, kRanks>;

// times: how often each thread of a rank calls.
Calls call_from_all(const std::vector<arc::Communicator>& comms, std::size_t count,
                    const std::array<std::size_t, kRanks>& times) {
  static std::atomic<std::uint64_t> next_number{1};  // no number comes again, nor what is stale
  std::array<std::array<std::vector<Called>, kThreads>, kRanks> by_thread;
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    for (std::size_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, rank, thread] {
        const std::uint64_t first = next_number.fetch_add(times[rank]);
        by_thread[rank][thread] = Caller(comms[rank].get(), rank, first, count).call(times[rank]);
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  Calls calls;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    for (std::vector<Called>& each : by_thread[rank])
      calls[rank].insert(calls[rank].end(), each.begin(), each.end());
  }
  return calls;
}

// Whoever had a result had the one that those had whom it met.
void expect_all_met_the_same(const Calls& calls) {
  std::array<std::map<std::uint64_t, Called::Met>, kRanks> met;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    for (const Called& called : calls[rank]) {
      if (called.code != arcSuccess) continue;
      EXPECT_EQ(called.met[rank], called.number) << "rank " << rank << " has another call's result";
      met[rank][called.number] = called.met;
    }
  }
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    for (const auto& [number, mine] : met[rank]) {
      for (std::size_t peer = 0; peer < kRanks; ++peer) {
        const auto theirs = met[peer].find(mine[peer]);
        if (theirs == met[peer].end()) continue;
        EXPECT_EQ(theirs->second, mine) << "call " << number << " of rank " << rank;
      }
    }
  }
}

std::size_t succeeded(const std::vector<Called>& calls) {
  return static_cast<std::size_t>(std::ranges::count(calls, arcSuccess, &Called::code));
}

void expect_all_succeed(const Calls& calls) {
  for (const std::vector<Called>& each : calls) {
    EXPECT_EQ(succeeded(each), each.size());
    for (const Called& called : each) {
      if (called.code == arcSuccess) continue;
      ADD_FAILURE() << "call " << called.number << ": " << arcGetErrorString(called.code);
      break;
    }
  }
  expect_all_met_the_same(calls);
}

class ThreadsOfRanks : public ClientLibrary {
 protected:
  void form_two() {
    form(static_cast<int>(kRanks));
    std::swap(comms_, others_);
    form(static_cast<int>(kRanks));
  }
  void TearDown() override {
    others_.clear();
    ClientLibrary::TearDown();
  }
  // Both at once: of few bytes, beside the heads, and of many.
  std::pair<Calls, Calls> call_on_both(const std::array<std::size_t, kRanks>& times_on_first) {
    Calls first, second;
    std::thread other([&] { second = call_from_all(others_, 513, {40, 40, 40}); });
    first = call_from_all(comms_, 9, times_on_first);
    other.join();
    return {first, second};
  }
  std::vector<arc::Communicator> others_;
};

TEST_F(ThreadsOfRanks, MeetCallForCallOnEachCommunicatorAndEndByTheirDeadlineWhereSomeDoNotCome) {
  start({}, kLong.count());
  form_two();
  auto [first, second] = call_on_both({100, 100, 100});
  expect_all_succeed(first);
  expect_all_succeed(second);

  // Two calls of the other ranks' threads find nobody.
  std::tie(first, second) = call_on_both({100, 60, 100});
  expect_all_succeed(second);
  expect_all_met_the_same(first);
  EXPECT_EQ(succeeded(first[1]), kThreads * 60);
  for (const std::size_t rank : {std::size_t{0}, std::size_t{2}}) {
    EXPECT_EQ(succeeded(first[rank]), kThreads * 60);
    bool is_late = false;
    for (const Called& called : first[rank]) {
      EXPECT_LT(called.took, kLong + milliseconds(100) + kSlack);
      if (called.code == arcDeadlineExceeded) {
        EXPECT_EQ(called.why.reason, arcReasonTimeout);
        is_late |= called.why.rank == 1;
      } else if (called.code != arcSuccess) {
        EXPECT_TRUE(called.why.reason == arcReasonRevoked ||
                    called.why.reason == arcReasonRemoteAborted)
            << arcGetErrorString(called.code) << ", reason " << called.why.reason;
      }
    }
    EXPECT_TRUE(is_late) << "rank " << rank << ": no timeout names the rank that did not come";
  }

  rebuild();
  std::tie(first, second) = call_on_both({50, 50, 50});
  expect_all_succeed(first);
  expect_all_succeed(second);
}

// A page that whoever touches it waits at, until it is let go.
class PageThatHolds {
 public:
  PageThatHolds() {
    page_ = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    is_touched_ = is_let_go_ = false;
    struct sigaction action {};
    action.sa_sigaction = hold;
    action.sa_flags = SA_SIGINFO;
    EXPECT_EQ(::sigaction(SIGSEGV, &action, &before_), 0);
  }
  PageThatHolds(const PageThatHolds&) = delete;
  PageThatHolds& operator=(const PageThatHolds&) = delete;
  ~PageThatHolds() {
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::munmap(page_, kBytes);
  }
  float* data() const { return static_cast<float*>(page_); }
  // False: nobody has within the time, or before `is_over`.
  bool wait_until_touched(milliseconds limit, const std::atomic<bool>& is_over) const {
    for (const auto begin = Clock::now(); !is_touched_ && !is_over && since(begin) < limit;)
      ::usleep(1000);
    return is_touched_;
  }
  void let_go() { is_let_go_ = true; }

 private:
  static void hold(int, siginfo_t* what, void*) {
    const auto* at = static_cast<const std::byte*>(what->si_addr);
    const auto* begin = static_cast<const std::byte*>(page_);
    if (at < begin || at >= begin + kBytes) {
      ::sigaction(SIGSEGV, &before_, nullptr);  // a real one: it comes again
      return;
    }
    is_touched_ = true;
    while (!is_let_go_) ::usleep(1000);
    ::mprotect(page_, kBytes, PROT_READ | PROT_WRITE);
  }
  static constexpr std::size_t kBytes = 4096;
  static inline void* page_ = nullptr;
  static inline std::atomic<bool> is_touched_{false}, is_let_go_{false};
  static inline struct sigaction before_ {};
};

TEST_F(ThreadsOfRanks, ACallWhoseTurnDoesNotComeByItsDeadlineIsToldThatAnotherThreadHasIt) {
  if (!host::can_reduce_in_call()) GTEST_SKIP() << "needs AVX2";
  start({}, kLong.count());
  form(2);
  PageThatHolds page;
  std::atomic<bool> is_over{false};
  std::thread held([&] {
    EXPECT_NE(arcAllReduce(page.data(), page.data(), 1, arcFloat32, arcSum, comm(0).get(), nullptr),
              arcSuccess)
        << "its communicator has ended meanwhile";
    is_over = true;
  });
  if (!page.wait_until_touched(kLong, is_over)) {
    page.let_go();
    held.join();
    FAIL() << "no call has read the page";
  }
  const auto begin = Clock::now();
  float value = 1;
  EXPECT_EQ(arcAllReduce(&value, &value, 1, arcFloat32, arcSum, comm(0).get(), nullptr),
            arcDeadlineExceeded);
  EXPECT_GE(since(begin), kLong);
  EXPECT_LT(since(begin), kLong + milliseconds(100) + kSlack);
  EXPECT_EQ(last().reason, arcReasonTimeout);
  EXPECT_NE(std::string(arcGetLastError(nullptr)).find("another thread"), std::string::npos)
      << arcGetLastError(nullptr);
  // Nobody waits for it once more.
  EXPECT_EQ(arcAllReduce(&value, &value, 1, arcFloat32, arcSum, comm(1).get(), nullptr),
            arcAborted);
  page.let_go();
  held.join();
  rebuild();
  std::thread peer([&] { comm(1).all_reduce(&value, &value, 1); });
  float mine = 2;
  comm(0).all_reduce(&mine, &mine, 1);
  peer.join();
  EXPECT_EQ(mine, 3);
}

}  // namespace
}  // namespace arcomm::support

// arcomm_table_filler RUNTIME_DIR DEADLINE_MS FILL_MS: one user who takes as much of every table as
// the daemon gives it, for at most FILL_MS for each of those that take a call for each entry. Says
// {"communicators": ...} when they are full. On the next line from stdin it submits as many
// requests as may be in flight, in communicators whose other ranks never call, all of them with the
// same deadline, DEADLINE_MS away; says so; reads what it is told until nothing comes for a while;
// says how many ended. Then it waits to be killed.
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <vector>

#include "tests/integration/hostile/attack.h"

namespace arcomm::support {
namespace {

constexpr std::size_t kSessions = 64;  // with their rings full: quota.in_flight
constexpr std::uint64_t kRefusedEach = 2;
constexpr std::size_t kThreads = 4;

struct Communicator {
  std::size_t caller = 0;  // whose session has rank 0; the next one has rank 1
  MemberId member;
  std::uint64_t next_seq = 0;
};

class TableFiller {
 public:
  TableFiller(std::string runtime_dir, milliseconds deadline, milliseconds patience)
      : runtime_dir_(std::move(runtime_dir)), deadline_(deadline), patience_(patience) {}

  nlohmann::json fill() {
    for (std::size_t i = 0; i < kSessions; ++i) {
      RawSession::Options options;
      options.process_name = "filler";
      Result<std::unique_ptr<RawSession>> session = RawSession::attach(runtime_dir_, options);
      if (!session) break;
      const Result<RawSession::Buffer> buffer = (*session)->allocate(4096);
      if (!buffer) break;
      sessions_.push_back(std::move(*session));
      buffers_.push_back(buffer->id);
    }
    if (sessions_.size() < 2) return {{"sessions", sessions_.size()}};
    form_communicators();
    const std::uint64_t plans = repeat([this](std::size_t thread, std::uint64_t) {
      const Communicator& which = communicators_[thread % communicators_.size()];
      return sessions_[which.caller]->create_plan(which.member, buffers_[which.caller], 16).ok();
    });
    const UniqueFd memory = make_sparse(4096);
    const std::uint64_t registered = repeat([&](std::size_t thread, std::uint64_t) {
      return sessions_[thread]->register_memory(memory.get(), 0, 4096).ok();
    });
    return {{"sessions", sessions_.size()},
            {"communicators", communicators_.size()},
            {"plans", plans},
            {"buffers", registered + buffers_.size()}};
  }

  std::uint64_t submit() {
    const Clock::time_point common = Clock::now() + deadline_;
    std::uint64_t submitted = 0;
    // Those that are refused wait, too, until the other rank has come and heard of it.
    for (std::uint64_t i = 0; i < kRefusedEach; ++i) submitted += submit_one_each(common, true);
    read_completions(milliseconds(50));
    std::uint64_t more = 1;
    while (more != 0) submitted += more = submit_one_each(common, false);
    return submitted;
  }
  // Of all sessions, until nothing has come for a while after the deadline.
  std::uint64_t read_until_over() { return read_completions(deadline_ + milliseconds(500)); }

 private:
  void form_communicators() {
    std::mt19937_64 random(std::random_device{}());
    bool goes_on = true;
    while (goes_on) {
      const std::size_t caller = communicators_.size() % sessions_.size();
      std::string id(128, '\0');
      for (char& byte : id) byte = static_cast<char>(random());
      RawSession& other = *sessions_[(caller + 1) % sessions_.size()];
      std::thread second(
          [&] { static_cast<void>(other.create_communicator(id, 1, 2, milliseconds(2000))); });
      const Result<MemberId> member =
          sessions_[caller]->create_communicator(id, 0, 2, milliseconds(2000));
      second.join();
      goes_on = member.ok();
      if (goes_on) communicators_.push_back({caller, *member});
    }
  }
  // How often `act` succeeded, in several threads, each with sessions of its own.
  std::uint64_t repeat(const std::function<bool(std::size_t, std::uint64_t)>& act) {
    std::atomic<std::uint64_t> done{0};
    const Clock::time_point end = Clock::now() + patience_;
    std::vector<std::thread> threads;
    for (std::size_t thread = 0; thread < std::min(kThreads, sessions_.size()); ++thread) {
      threads.emplace_back([&, thread] {
        for (std::uint64_t i = 0; Clock::now() < end && act(thread, i); ++i) ++done;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return done;
  }
  std::uint64_t submit_one_each(Clock::time_point common, bool is_refused) {
    std::uint64_t submitted = 0;
    for (Communicator& each : communicators_) {
      ring::WorkRequest request =
          valid_request(each.member, each.next_seq, buffers_[each.caller], 16);
      if (is_refused) request.send_offset_bytes = 1 << 20;
      const auto left = std::chrono::nanoseconds(common - Clock::now()).count();
      request.timeout_ns = static_cast<std::uint64_t>(std::max<std::int64_t>(left, 1));
      if (sessions_[each.caller]->submit(request) != ring::Push::Done) continue;
      ++each.next_seq;
      ++submitted;
    }
    return submitted;
  }
  std::uint64_t read_completions(milliseconds quiet) {
    std::uint64_t read = 0;
    for (Clock::time_point last = Clock::now(); Clock::now() < last + quiet;) {
      const std::uint64_t before = read;
      for (const auto& session : sessions_) {
        while (session->next_completion(milliseconds(0))) ++read;
      }
      if (read != before) last = Clock::now();
      ::usleep(1000);
    }
    return read;
  }

  std::string runtime_dir_;
  milliseconds deadline_, patience_;
  std::vector<std::unique_ptr<RawSession>> sessions_;
  std::vector<BufferId> buffers_;
  std::vector<Communicator> communicators_;
};

}  // namespace
}  // namespace arcomm::support

int main(int count, char** words) {
  using arcomm::support::milliseconds;
  if (count != 4) return 2;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  arcomm::support::TableFiller filler(words[1], milliseconds(std::atol(words[2])),
                                      milliseconds(std::atol(words[3])));
  std::cout << filler.fill() << std::endl;
  std::string line;
  if (!std::getline(std::cin, line)) return 1;
  std::cout << nlohmann::json{{"submitted", filler.submit()}} << std::endl;
  std::cout << nlohmann::json{{"ended", filler.read_until_over()}} << std::endl;
  for (;;) ::pause();
}

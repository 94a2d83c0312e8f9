// arcomm_hostile_client RUNTIME_DIR SEED: one life after the other, each a process of its own that
// runs some attacks and ends by itself, or is ended in the middle of one, with whatever it holds.
// Every attack has its turn before one has its next. As root of a user namespace each life is
// another user of it. Until SIGTERM; then it prints as JSON what was done and the CPU time of all
// of it. Before a life no thread is started here: a life is a fork.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/integration/hostile/attack.h"

namespace arcomm::support {
namespace {

constexpr milliseconds kAttack{400};
constexpr uid_t kUsersOfNamespace = 16;
constexpr int kLongestLife_s = 20;  // of one that hangs, whoever's fault it is

volatile std::sig_atomic_t told_to_stop = 0;

// ARCOMM_SOAK_ATTACKS: those alone whose names have it in them, to find out what one of them does.
std::vector<Attack> all_attacks() {
  const char* const some_name = std::getenv("ARCOMM_SOAK_ATTACKS");
  std::vector<Attack> all;
  for (const std::span<const Attack> some :
       {socket_attacks(), http2_attacks(), port_attacks(), control_attacks(), request_attacks()}) {
    std::copy_if(some.begin(), some.end(), std::back_inserter(all), [&](const Attack& attack) {
      return some_name == nullptr ||
             std::string_view(attack.name).find(some_name) != std::string_view::npos;
    });
  }
  return all;
}

// Shared with the lives, which may end at any moment.
struct Tally {
  struct Of {
    std::atomic<std::uint64_t> turns, done;
  };
  explicit Tally(std::size_t attacks)
      : of(static_cast<Of*>(::mmap(nullptr, attacks * sizeof(Of), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  Of* of;
};

[[noreturn]] void live(Attacker& attacker, const std::vector<Attack>& attacks,
                       const std::vector<std::size_t>& turns, bool is_cut_short, Tally& tally) {
  if (::getuid() == 0) {
    const auto user = static_cast<uid_t>(attacker.below(kUsersOfNamespace));
    if (::setresuid(user, user, user) != 0) ::_exit(1);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGTERM, SIG_DFL);
  ::alarm(kLongestLife_s);
  if (is_cut_short) {
    const suseconds_t after_us = 1000 * (5 + static_cast<suseconds_t>(attacker.below(500)));
    const itimerval sudden{{0, 0}, {0, after_us}};
    ::setitimer(ITIMER_REAL, &sudden, nullptr);  // SIGALRM ends it
  }
  for (const std::size_t which : turns) {
    attacker.give_time(kAttack);
    tally.of[which].turns.fetch_add(1, std::memory_order_relaxed);
    tally.of[which].done.fetch_add(attacks[which].run(attacker), std::memory_order_relaxed);
  }
  ::_exit(0);
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

int attack_until_told(const std::string& runtime_dir, std::uint64_t seed) {
  const std::vector<Attack> attacks = all_attacks();
  if (attacks.empty()) return 2;
  Tally tally(attacks.size());
  std::mt19937_64 random(seed);
  std::vector<std::size_t> deck;
  std::uint64_t lives = 0, cut_short = 0;
  for (; told_to_stop == 0; ++lives) {
    std::vector<std::size_t> turns;
    for (std::uint64_t left = 1 + random() % 4; left > 0; --left) {
      if (deck.empty()) {
        for (std::size_t i = 0; i < attacks.size(); ++i) deck.push_back(i);
        std::shuffle(deck.begin(), deck.end(), random);
      }
      turns.push_back(deck.back());
      deck.pop_back();
    }
    const bool is_cut_short = random() % 5 < 2;
    cut_short += is_cut_short ? 1 : 0;
    Attacker attacker(runtime_dir, random());
    const pid_t life = ::fork();
    if (life < 0) ::usleep(10'000);
    if (life == 0) live(attacker, attacks, turns, is_cut_short, tally);
    while (life > 0 && ::waitpid(life, nullptr, 0) < 0 && told_to_stop == 0) {
    }
    if (told_to_stop != 0 && life > 0) {
      ::kill(life, SIGKILL);
      ::waitpid(life, nullptr, 0);
    }
  }
  double cpu = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    ::getrusage(static_cast<__rusage_who_t>(who), &used);
    cpu += seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
  }
  nlohmann::json told{{"lives", lives}, {"cut_short", cut_short}, {"cpu_seconds", cpu}};
  for (std::size_t i = 0; i < attacks.size(); ++i) {
    told["attacks"][attacks[i].name] = {{"turns", tally.of[i].turns.load()},
                                        {"done", tally.of[i].done.load()}};
  }
  std::printf("%s\n", told.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace arcomm::support

int main(int count, char** words) {
  if (count != 3) return 2;
  struct sigaction told {};
  told.sa_handler = [](int) { arcomm::support::told_to_stop = 1; };
  ::sigaction(SIGTERM, &told, nullptr);  // without SA_RESTART: it ends the wait for a life
  return arcomm::support::attack_until_told(words[1], std::strtoull(words[2], nullptr, 10));
}

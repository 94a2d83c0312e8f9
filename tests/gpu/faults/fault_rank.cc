// One rank, in a process of its own, of a communicator that something happens to: run_faults.sh
// makes it happen, or the rank does.
//   fault_rank ROLE [--expect KIND] [--culprit R] [--culprit-does ROLE] [--culprit-expects KIND]
//     [--recover] [--seconds S] [--most-ms T] [--stopped-ms T] + what client_rank takes: --rank R
//     --ranks N --id-file PATH [--gpu G] [--sizes 4k,32m] [--dtype f16|bf16|f32]
//     [--memory arc|cuda] [--timeout-ms T]
// work     AllReduces (fault_work.h) until they fail as KIND says (fault_expect.h), of the culprit;
//          with --recover it rebuilds then, and works on for a moment. Without --expect: for S
//          seconds, in which nothing may fail and no batch may take longer than --most-ms.
// join     takes a dead rank's place, and does what those that recover do
// break    works for S seconds and breaks its own context; stays for longer than its timeout, where
//          its peers are to wait for it (peer-broken)
// cases    fault_cases.h, one after the other
// The culprit may have a role and an expectation of its own, and may be stopped for so long.
// Says "working" when it has worked once. Exit code 1 and a sentence on stderr where anything is
// not as it must be.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "client/include/arclient.h"
#include "tests/gpu/faults/fault_cases.h"
#include "tests/gpu/faults/fault_expect.h"
#include "tests/gpu/faults/fault_kernels.h"
#include "tests/gpu/faults/fault_work.h"
#include "tests/gpu/service/client/client_comm.h"
#include "tests/gpu/service/client/client_id.h"
#include "tests/gpu/service/client/client_options.h"

namespace arcomm::gpu {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSomethingHappensWithin{40'000};
constexpr int kRoundsAfter = 3;  // the same number on all ranks

struct Role {
  std::string name, expected;
  int culprit = -1;
  bool recovers = false;
  double seconds = 1;
  long most_ms = 500;
};

// Takes its own options out, and leaves the others to client_options.
Role parse_role(int argc, char** argv) {
  if (argc < 2) die("name a role: work, join, break or cases");
  std::string culprit_does, culprit_expects;
  milliseconds stopped{};
  Role role{.name = argv[1], .expected = {}};
  std::vector<char*> others{argv[0]};
  for (int i = 2; i < argc; ++i) {
    const std::string_view name = argv[i];
    const auto value = [&]() -> const char* {
      if (i + 1 >= argc) die(std::string(name) + " needs a value");
      return argv[++i];
    };
    if (name == "--expect") {
      role.expected = value();
    } else if (name == "--culprit") {
      role.culprit = std::atoi(value());
    } else if (name == "--recover") {
      role.recovers = true;
    } else if (name == "--seconds") {
      role.seconds = std::strtod(value(), nullptr);
    } else if (name == "--most-ms") {
      role.most_ms = std::strtol(value(), nullptr, 10);
    } else if (name == "--stopped-ms") {
      stopped = milliseconds(std::strtol(value(), nullptr, 10));
    } else if (name == "--culprit-does") {
      culprit_does = value();
    } else if (name == "--culprit-expects") {
      culprit_expects = value();
    } else {
      others.push_back(argv[i]);
    }
  }
  parse(static_cast<int>(others.size()), others.data());
  if (options.rank != role.culprit) return role;
  if (!culprit_does.empty()) role.name = culprit_does;
  if (!culprit_expects.empty()) role.expected = culprit_expects;
  stopped_for = stopped;
  return role;
}

void say(const std::string& what) {
  std::printf("%s\n", what.c_str());
  std::fflush(stdout);
}

// A process with a broken context has nothing to give back, and CUDA's own end may take its time.
[[noreturn]] void leave_at_once() {
  std::fflush(stdout);
  std::_Exit(0);
}

// Nothing may fail; the ranks agree on when it is over.
void undisturbed(ClientComm& comm, FaultWork& work, const Role& role) {
  const FaultClock::time_point begin = FaultClock::now();
  work.forget_longest();
  while (comm.greatest(static_cast<double>(ms_since(begin).count())) < 1000 * role.seconds)
    work.rounds(1);
  const long longest = work.longest().count();
  if (longest > role.most_ms)
    die("a batch took " + std::to_string(longest) + " ms, though others' faults are their own");
  say("undisturbed for " + std::to_string(ms_since(begin).count()) +
      " ms; the longest batch took " + std::to_string(longest) + " ms");
}

void until_it_fails(FaultWork& work, const Role& role) {
  const std::optional<Failure> failure = work.until_failure(kSomethingHappensWithin);
  if (!failure) die("nothing failed");
  expect(*failure, role.expected, role.culprit);
  say(failure->text());
  if (failure->stream != cudaSuccess) {
    if (role.recovers)
      die(std::string("its own stream failed: ") + cudaGetErrorName(failure->stream));
    leave_at_once();  // under MPS a GPU in error is so for all its processes
  }
  if (role.expected != "gpu-lost" || role.recovers) work.expect_replays_to_end();
  if (!role.recovers) leave_at_once();
  const FaultClock::time_point begin = FaultClock::now();
  work.rebuild();
  work.rounds(kRoundsAfter);
  say("works again " + std::to_string(ms_since(begin).count()) + " ms later");
}

void work(const Role& role) {
  ClientComm comm(exchange_id(options.id_file));
  {
    FaultWork work(comm);
    // What the daemon itself breaks it breaks at once.
    if (role.expected != "gpu-lost" || !role.recovers) work.rounds(1);
    say("working");
    if (role.expected.empty()) {
      undisturbed(comm, work, role);
    } else {
      until_it_fails(work, role);
    }
  }
  comm.leave();
}

void join() {
  ClientComm comm(exchange_id(options.id_file));
  {
    FaultWork work(comm);
    work.rounds(kRoundsAfter);
    say("works in the place of a rank that died");
  }
  comm.leave();
}

void break_context(const Role& role) {
  ClientComm comm(exchange_id(options.id_file));
  FaultWork work(comm);
  work.rounds(1);
  say("working");
  if (const auto failure = work.until_failure(milliseconds(static_cast<long>(1000 * role.seconds))))
    die("before anything was broken: " + failure->text());
  cuda(write_to_nobodys_memory(comm.stream()), "launching the kernel that breaks the context");
  const FaultClock::time_point broken = FaultClock::now();
  const std::optional<Failure> failure = work.until_failure(milliseconds(options.timeout_ms));
  if (!failure) die("a broken context went unnoticed");
  expect(*failure, "self-broken", -1);
  say(failure->text());
  // Neither dead nor alive: its peers have their deadline only. Under MPS, where they break with
  // it, nobody is served until all have ended.
  while (role.expected == "peer-broken" &&
         ms_since(broken) < milliseconds(options.timeout_ms) + 2 * kStreamLate)
    std::this_thread::sleep_for(milliseconds(10));
  leave_at_once();
}

int run(int argc, char** argv) {
  const Role role = parse_role(argc, argv);
  cuda(cudaSetDevice(options.gpu), "cudaSetDevice");
  arcConfig_t config = ARC_CONFIG_INITIALIZER;
  config.runtime_dir = options.runtime_dir.empty() ? nullptr : options.runtime_dir.c_str();
  config.device = "gpu";
  config.timeout_ms = options.timeout_ms;
  arc(arcInit(&config), "arcInit");
  if (role.name != "join") {
    cuda(cudaFree(nullptr), "making a context");
    meet_by_files(options.id_file);
  }
  if (role.name == "work") {
    work(role);
  } else if (role.name == "join") {
    join();
  } else if (role.name == "break") {
    break_context(role);
  } else if (role.name == "cases") {
    miss();
    cross(Ending::Abort);
    cross(Ending::Deadline);
    hoard();
    free_early();
  } else {
    die("there is no role " + role.name);
  }
  arc(arcFinalize(), "arcFinalize");
  say("rank " + std::to_string(options.rank) + ": all is well");
  return 0;
}

}  // namespace
}  // namespace arcomm::gpu

int main(int argc, char** argv) {
  return arcomm::gpu::run(argc, argv);
}

// A client process that does what it is told: one verb per line on stdin, one reply per line on
// stdout, over libarclient's public interface only:
//   code reason culprit-rank took-ms value message
// NAME is the test's name for a thing. OPERATION is: COMM COUNT DTYPE OP, then any of
//   place=in|out  mem=heap|odd|alloc|registered|shared  recv=(the same)  salt=N  n=N (repetitions)
//
//   init [timeout_ms]              finalize
//   id                             the value is a fresh unique id
//   comm NAME RANKS ID RANK        destroy|abort|rebuild|epoch|state NAME
//   comms NAME RANKS ID RANK...    one group; the communicators are NAME0, NAME1, ...
//   alloc|register NAME BYTES      free|deregister NAME
//
//   allreduce OPERATION            the value is a hash of the result
//   loop OPERATION                 the value is "operations,p50,p99,max" in us
//   async NAME OPERATION           test NAME                wait NAME [timeout_ms]
//   plan NAME OPERATION            planrun NAME N           plandestroy NAME
//   group|threads COUNT DTYPE OP COMM...
//   flood COMM COUNT n=N           drain
//   storm COMM COUNT               as many at once as the daemon takes, until SIGUSR1; how many
//   burn                           a core for itself, until SIGUSR1
//   busy PERCENT                   a share of a core, until SIGUSR1
//   steady COMM MS                 sums of 1 KB to 64 KB, all checked; the value is a histogram
//   attaches MS EVERY_MS           a new session each time; the value is a histogram
//
//   cycles session|comm|alloc|register N
//   hoard comm|alloc|shared N [BYTES]  as many as the daemon gives, N at the most, and keeps them:
//                                  the value is how many; a failure is what refused the next
//   fork COMM                      die COMM COUNT
//   sleep MS                       exit CODE                _exit CODE
#include "tests/support/client/test_client.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <thread>

namespace arcomm::support {

using Clock = std::chrono::steady_clock;

Outcome Client::act(const Words& words) {
  const std::string& verb = words[0];
  const auto number = [&] { return words.size() > 1 ? std::atoi(words[1].c_str()) : 0; };
  if (verb == "init") return init(words);
  if (verb == "finalize") return finalize();
  if (verb == "id") return make_id();
  if (verb == "comm" || verb == "comms") return join(words);
  if (verb == "allreduce") return all_reduce(words);
  if (verb == "loop") return loop(words);
  if (verb == "async") return submit(words);
  if (verb == "wait" || verb == "test") return wait(words);
  if (verb == "group" || verb == "threads") return together(words);
  if (verb == "plan" || verb == "planrun" || verb == "plandestroy") return plan(words);
  if (verb == "destroy" || verb == "abort" || verb == "rebuild" || verb == "epoch" ||
      verb == "state") {
    return on_communicator(words);
  }
  if (verb == "alloc" || verb == "free" || verb == "register" || verb == "deregister")
    return memory(words);
  if (verb == "flood") return flood(words);
  if (verb == "drain") return drain();
  if (verb == "storm") return storm(words);
  if (verb == "burn") return burn();
  if (verb == "busy") return busy(words);
  if (verb == "steady") return steady(words);
  if (verb == "attaches") return attaches(words);
  if (verb == "cycles") return cycles(words);
  if (verb == "hoard") return hoard(words);
  if (verb == "fork") return in_child(words);
  if (verb == "die") {
    Words async{"async", "dying"};
    async.insert(async.end(), words.begin() + 1, words.end());
    async.insert(async.end(), {"float32", "sum"});
    submit(async);
    ::raise(SIGKILL);
  }
  if (verb == "sleep") {
    std::this_thread::sleep_for(std::chrono::milliseconds(number()));
    return {};
  }
  if (verb == "exit") std::exit(number());
  if (verb == "_exit") ::_exit(number());
  return wrong("unknown verb " + verb);
}

namespace {

int serve() {
  Client client;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    Words words;
    for (std::string word; in >> word;) words.push_back(word);
    if (words.empty()) continue;
    const auto started = Clock::now();
    const Outcome outcome = client.act(words);
    const auto took =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started).count();
    arcErrorInfo_t info{};
    info.struct_size = sizeof(info);
    info.rank = -1;
    const bool failed = outcome.code != arcSuccess && outcome.code != arcInProgress;
    if (failed) arcGetLastErrorInfo(&info);
    std::string message = failed && outcome.message.empty() ? info.message : outcome.message;
    std::replace(message.begin(), message.end(), '\n', ' ');
    std::cout << outcome.code << ' ' << (failed ? info.reason : 0) << ' '
              << (failed ? info.rank : -1) << ' ' << took << ' ' << outcome.value << ' ' << message
              << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace arcomm::support

int main() {
  return arcomm::support::serve();
}

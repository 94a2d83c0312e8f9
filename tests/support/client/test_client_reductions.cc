// Verbs that reduce: one by one, many at once, by plans, and more than the daemon takes.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tests/support/client/test_client.h"

namespace arcomm::support {

using Clock = std::chrono::steady_clock;

bool Client::parse_operation(const Words& words, std::size_t at, Operation* operation) {
  if (words.size() < at + 4 || comms_.count(words[at]) == 0) return false;
  operation->comm = comms_[words[at]];
  operation->count = std::strtoull(words[at + 1].c_str(), nullptr, 10);
  operation->options = parse_options(words, at + 4);
  return parse_dtype(words[at + 2], &operation->dtype) && parse_op(words[at + 3], &operation->op);
}

Outcome Client::all_reduce(const Words& words) {
  Operation operation;
  if (!parse_operation(words, 1, &operation)) return wrong("allreduce COMM COUNT DTYPE OP");
  if (const arcResult_t prepared = operation.prepare(); prepared != arcSuccess)
    return {prepared, "-", ""};
  Outcome outcome;
  for (std::size_t round = 0; round < operation.options.n && outcome.code == arcSuccess; ++round) {
    operation.fill(round);
    outcome = operation.judge(operation.run(), round);
  }
  return outcome;
}

Outcome Client::loop(const Words& words) {
  Operation operation;
  if (!parse_operation(words, 1, &operation)) return wrong("loop COMM COUNT DTYPE OP n=N");
  if (const arcResult_t prepared = operation.prepare(); prepared != arcSuccess)
    return {prepared, "-", ""};
  std::vector<double> took;
  Outcome outcome;
  for (std::size_t round = 0; round < operation.options.n && outcome.code == arcSuccess; ++round) {
    operation.fill(round);
    const auto started = Clock::now();
    const arcResult_t result = operation.run();
    took.push_back(std::chrono::duration<double, std::micro>(Clock::now() - started).count());
    outcome = operation.judge(result, round);
  }
  std::sort(took.begin(), took.end());
  const auto at = [&](std::size_t percent) {
    return took.empty()
               ? 0
               : static_cast<long>(took[std::min(took.size() - 1, took.size() * percent / 100)]);
  };
  outcome.value = std::to_string(took.size()) + "," + std::to_string(at(50)) + "," +
                  std::to_string(at(99)) + "," + std::to_string(at(100));
  return outcome;
}

Outcome Client::submit(const Words& words) {
  Operation operation;
  if (words.size() < 3 || !parse_operation(words, 2, &operation))
    return wrong("async NAME COMM COUNT DTYPE OP");
  if (const arcResult_t prepared = operation.prepare(); prepared != arcSuccess)
    return {prepared, "-", ""};
  operation.fill(0);
  const arcResult_t result = operation.submit();
  operations_[words[1]] = std::move(operation);
  return {result, "-", ""};
}

Outcome Client::wait(const Words& words) {
  if (words.size() < 2 || operations_.count(words[1]) == 0) return wrong("wait NAME");
  Operation& operation = operations_[words[1]];
  const std::uint64_t timeout = words.size() > 2 ? std::strtoull(words[2].c_str(), nullptr, 10) : 0;
  const arcResult_t result =
      words[0] == "test" ? arcTest(operation.ticket) : arcWait(operation.ticket, timeout);
  return result == arcInProgress ? Outcome{arcInProgress, "-", ""} : operation.judge(result, 0);
}

// Several ranks of this process at once: by one group, or by a thread each.
Outcome Client::together(const Words& words) {
  std::vector<Operation> operations(words.size() < 5 ? 0 : words.size() - 4);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (!parse_operation({words[4 + i], words[1], words[2], words[3]}, 0, &operations[i]))
      return wrong("group");
    if (const arcResult_t prepared = operations[i].prepare(); prepared != arcSuccess)
      return {prepared, "-", ""};
    operations[i].fill(0);
  }
  if (operations.empty()) return wrong("group COUNT DTYPE OP COMM...");
  arcResult_t result = arcSuccess;
  std::string message;
  if (words[0] == "group") {
    result = arcGroupStart();
    for (const Operation& operation : operations) {
      if (result == arcSuccess) result = operation.run();
    }
    const arcResult_t ended = arcGroupEnd();
    if (result == arcSuccess) result = ended;
  } else {
    std::vector<arcResult_t> results(operations.size());
    std::vector<std::string> messages(operations.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      threads.emplace_back([&, i] {
        results[i] = operations[i].run();
        messages[i] = arcGetLastError(nullptr);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < results.size() && result == arcSuccess; ++i) {
      result = results[i];
      message = messages[i];
    }
  }
  Outcome outcome{result, "-", message};
  for (std::size_t i = 0; i < operations.size() && outcome.code == arcSuccess; ++i)
    outcome = operations[i].judge(result, 0);
  return outcome;
}

Outcome Client::plan(const Words& words) {
  if (words.size() < 2) return wrong("plan NAME");
  if (words[0] == "plan") {
    Operation operation;
    if (!parse_operation(words, 2, &operation)) return wrong("plan NAME COMM COUNT DTYPE OP");
    if (const arcResult_t prepared = operation.prepare(); prepared != arcSuccess)
      return {prepared, "-", ""};
    const arcResult_t result = operation.make_plan();
    operations_[words[1]] = std::move(operation);
    return {result, "-", ""};
  }
  if (operations_.count(words[1]) == 0) return wrong("no such plan");
  Operation& operation = operations_[words[1]];
  if (words[0] == "plandestroy") {
    const arcResult_t result = arcPlanDestroy(operation.plan);
    operations_.erase(words[1]);
    return {result, "-", ""};
  }
  const std::size_t repetitions =
      words.size() > 2 ? std::strtoull(words[2].c_str(), nullptr, 10) : 1;
  Outcome outcome;
  for (std::size_t round = 0; round < repetitions && outcome.code == arcSuccess; ++round) {
    operation.fill(round);
    arcResult_t result = arcPlanStart(operation.plan, nullptr);
    if (result == arcSuccess) result = arcPlanWait(operation.plan, 0);
    outcome = operation.judge(result, round);
  }
  return outcome;
}

// Submits and never looks back, until a refusal.
Outcome Client::flood(const Words& words) {
  if (words.size() < 4 || comms_.count(words[1]) == 0) return wrong("flood COMM COUNT n=N");
  const Options options = parse_options(words, 3);
  std::size_t accepted = 0;
  for (; accepted < options.n; ++accepted) {
    Operation operation;
    if (!parse_operation({"", words[1], words[2], "float32", "sum"}, 1, &operation))
      return wrong("flood");
    if (operation.prepare() != arcSuccess) break;
    operation.fill(0);
    const arcResult_t result =
        arcAllReduceAsync(operation.send(), operation.recv(), operation.count, operation.dtype,
                          operation.op, operation.comm.handle, nullptr, &operation.ticket);
    if (result != arcSuccess) return {result, std::to_string(accepted), ""};
    flooded_.push_back(std::move(operation));
  }
  return {arcSuccess, std::to_string(accepted), ""};
}

Outcome Client::drain() {
  Outcome first;
  std::size_t fine = 0;
  for (Operation& operation : flooded_) {
    const Outcome outcome = operation.judge(arcWait(operation.ticket, 0), 0);
    if (outcome.code == arcSuccess) ++fine;
    if (outcome.code != arcSuccess && first.code == arcSuccess) first = outcome;
  }
  flooded_.clear();
  first.value = std::to_string(fine);
  return first;
}

namespace {

volatile std::sig_atomic_t told_to_stop = 0;

// From here on SIGUSR1 ends what runs, and not the process.
void run_until_told() {
  told_to_stop = 0;
  std::signal(SIGUSR1, [](int) { told_to_stop = 1; });
}

}  // namespace

Outcome Client::storm(const Words& words) {
  constexpr std::size_t kAtOnce = 256;
  run_until_told();
  std::vector<Operation> open(kAtOnce);
  for (Operation& operation : open) {
    if (words.size() < 3 ||
        !parse_operation({"", words[1], words[2], "float32", "sum", "mem=alloc", "place=in"}, 1,
                         &operation)) {
      return wrong("storm COMM COUNT");
    }
    if (const arcResult_t prepared = operation.prepare(); prepared != arcSuccess)
      return {prepared, "-", ""};
  }
  std::size_t submitted = 0, ended = 0;
  arcResult_t result = arcSuccess;
  while (result == arcSuccess && told_to_stop == 0) {
    if (submitted - ended == kAtOnce) result = arcWait(open[ended++ % kAtOnce].ticket, 0);
    if (result != arcSuccess) break;
    Operation& next = open[submitted % kAtOnce];
    result = arcAllReduceAsync(next.send(), next.recv(), next.count, next.dtype, next.op,
                               next.comm.handle, nullptr, &next.ticket);
    if (result == arcSuccess) ++submitted;
  }
  while (ended < submitted && result == arcSuccess)
    result = arcWait(open[ended++ % kAtOnce].ticket, 0);
  return {result, std::to_string(submitted), ""};
}

Outcome Client::burn() {
  run_until_told();
  while (told_to_stop == 0) {
  }
  return {};
}

}  // namespace arcomm::support

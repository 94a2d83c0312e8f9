// Verbs that go on for a while and tell how long everything took: the same work for every rank and
// every turn, so that turns can be compared.
#include <time.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/client/test_client.h"
#include "tests/support/latency_histogram.h"

namespace arcomm::support {
namespace {

using Clock = std::chrono::steady_clock;

// Steps, as those of a model: that many operations in a row, then work of the caller's own.
constexpr int kOperationsInAStep = 256;
constexpr std::chrono::milliseconds kBetweenSteps{4};
constexpr std::size_t kSmallest = 256, kLargest = 16'384;  // elements: 1 KB to 64 KB

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

Clock::time_point end_of(const std::string& milliseconds) {
  return Clock::now() + std::chrono::milliseconds(std::strtol(milliseconds.c_str(), nullptr, 10));
}

// Exact in float32, and different for every rank, element and operation.
float element(int rank, std::size_t at, std::uint64_t salt) {
  return static_cast<float>((at * 3 + salt * 7) % 1021 + static_cast<std::size_t>(rank) * 1024);
}

volatile std::sig_atomic_t busy_was_told = 0;

}  // namespace

// The first element is a vote on whether to stop, so that all ranks end with the same operation.
Outcome Client::steady(const Words& words) {
  if (words.size() < 3 || comms_.count(words[1]) == 0) return wrong("steady COMM MS");
  const Communicator& comm = comms_[words[1]];
  const Clock::time_point end = end_of(words[2]);
  std::vector<float> sent(kLargest), received(kLargest);
  std::mt19937_64 same_everywhere(static_cast<std::uint64_t>(comm.ranks));
  LatencyHistogram latency;
  for (std::uint64_t number = 0;; ++number) {
    // As many of each doubling.
    const std::size_t count = kSmallest << same_everywhere() % 7;
    for (std::size_t i = 1; i < count; ++i) sent[i] = element(comm.rank, i, number);
    sent[0] = Clock::now() < end ? 0 : 1;
    const Clock::time_point started = Clock::now();
    const arcResult_t result =
        arcAllReduce(sent.data(), received.data(), count, arcFloat32, arcSum, comm.handle, nullptr);
    latency.add(us_since(started));
    if (result != arcSuccess) return {result, latency.to_word(), ""};
    for (std::size_t i = 1; i < count; ++i) {
      float sum = 0;
      for (int rank = 0; rank < comm.ranks; ++rank) sum += element(rank, i, number);
      if (received[i] != sum) {
        return {arcDataLoss, latency.to_word(),
                "operation " + std::to_string(number) + ", element " + std::to_string(i) + " of " +
                    std::to_string(count) + " is " + std::to_string(received[i]) + " and not " +
                    std::to_string(sum)};
      }
    }
    if (received[0] != 0) return {arcSuccess, latency.to_word(), ""};
    if (number % kOperationsInAStep == kOperationsInAStep - 1)
      std::this_thread::sleep_for(kBetweenSteps);
  }
}

// Each is a session of its own; the time is that of arcInit and a communicator, what a process
// waits for before it can work. Its first sum is checked, too.
Outcome Client::attaches(const Words& words) {
  if (words.size() < 3) return wrong("attaches MS EVERY_MS");
  const Clock::time_point end = end_of(words[1]);
  const std::chrono::milliseconds every(std::strtol(words[2].c_str(), nullptr, 10));
  LatencyHistogram latency;
  Clock::time_point next = Clock::now();
  do {
    arcConfig_t config = ARC_CONFIG_INITIALIZER;
    config.timeout_ms = 10'000;
    arcUniqueId id{};
    arcComm_t comm = nullptr;
    float value = 5;
    const Clock::time_point started = Clock::now();
    arcResult_t result = arcInit(&config);
    if (result == arcSuccess) result = arcGetUniqueId(&id);
    if (result == arcSuccess) result = arcCommInitRank(&comm, 1, id, 0);
    latency.add(us_since(started));
    if (result == arcSuccess)
      result = arcAllReduce(&value, &value, 1, arcFloat32, arcSum, comm, nullptr);
    if (result == arcSuccess && value != 5) return {arcDataLoss, "-", "a sum of one is another"};
    if (result == arcSuccess) result = arcCommDestroy(comm);
    if (result == arcSuccess) result = arcFinalize();
    if (result != arcSuccess) return {result, latency.to_word(), ""};
    next = std::max(next + every, Clock::now());
    std::this_thread::sleep_until(std::min(next, end));
  } while (Clock::now() < end);
  return {arcSuccess, latency.to_word(), ""};
}

// A share of a core in pieces of some milliseconds, as programs use theirs.
Outcome Client::busy(const Words& words) {
  const double share = words.size() > 1 ? std::atof(words[1].c_str()) / 100 : 1;
  std::mt19937 random(static_cast<unsigned>(::getpid()));
  busy_was_told = 0;
  std::signal(SIGUSR1, [](int) { busy_was_told = 1; });
  const auto used_us = [] {
    timespec used{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) * 1e6 + static_cast<double>(used.tv_nsec) / 1e3;
  };
  const Clock::time_point began = Clock::now();
  const double used_before = used_us();
  while (busy_was_told == 0) {
    const double until = used_us() + 500 + static_cast<double>(random() % 8000);
    while (busy_was_told == 0 && used_us() < until) {
    }
    // Also what it did not get while it wanted it.
    const double ahead = (used_us() - used_before) / std::max(share, 0.01) - us_since(began);
    if (ahead > 0 && busy_was_told == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(static_cast<std::int64_t>(ahead)));
  }
  return {};
}

}  // namespace arcomm::support

// The thread that writes what the queue holds. It alone touches the output; being stuck there harms
// nobody else. Thread: start, replace and stop by the log's control side, one at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/telemetry/log/log_output.h"
#include "daemon/telemetry/log/log_queue.h"

namespace arcomm {

class LogWriter {
 public:
  // `queue` and `dropped` must live for as long as the process: a writer that is stuck in the
  // kernel is left behind. `notice` makes the line that says how many were dropped before it.
  // `each_second`, about, may put lines into the queue.
  using Notice = std::function<std::string(std::uint64_t dropped)>;
  LogWriter(LogQueue& queue, std::atomic<std::uint64_t>& dropped, std::unique_ptr<LogOutput> output,
            Notice notice, std::function<void()> each_second);
  ~LogWriter();  // stop({})

  // Lines from now on go to `output`.
  void replace(std::unique_ptr<LogOutput> output);
  // Writes what is queued for at most `patience`; what is left is dropped.
  void stop(std::chrono::milliseconds patience);

 private:
  struct Shared;  // what a writer left behind still uses
  static void run(std::shared_ptr<Shared> shared);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace arcomm

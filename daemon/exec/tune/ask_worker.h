// A question to a device worker whose asker blocks until it is answered. Thread: any but the
// worker's.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "proto/status.h"

namespace arcomm {

inline constexpr auto kWorkerAnswerLimit =
    std::chrono::seconds(15);  // longer than any kernel may hang

// question(done) puts it to the worker.
template <typename T, typename Question>
Result<T> ask_worker(Question question) {
  auto answer = std::make_shared<std::promise<Result<T>>>();
  std::future<Result<T>> coming = answer->get_future();
  question([answer](Result<T> result) { answer->set_value(std::move(result)); });
  if (coming.wait_for(kWorkerAnswerLimit) != std::future_status::ready) {
    return error(ErrorCode::DeadlineExceeded, Reason::Timeout,
                 "the GPUs' worker has not answered for ", kWorkerAnswerLimit.count(),
                 " s: see the daemon's log");
  }
  return coming.get();
}

}  // namespace arcomm

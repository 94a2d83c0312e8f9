#include "client/src/session/group.h"

#include <memory>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "client/src/host/all_reduce.h"
#include "client/src/session/session.h"

namespace arcomm::client {
namespace {

void keep_first(Status& first, Status status) {
  if (first.ok() && !status.ok()) first = std::move(status);
}

// Creations block until their peers have called, and the peers are in this very list; and together
// no call takes longer than the slowest.
Status run_together(std::vector<std::function<Status()>> calls) {
  std::vector<Status> results(calls.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < calls.size(); ++i) {
    try {
      threads.emplace_back([&calls, &results, i] { results[i] = calls[i](); });
    } catch (const std::system_error& why) {
      results[i] =
          error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                "cannot start a thread for communicator ", i, " of the group: ", why.what());
    }
  }
  if (!calls.empty()) results[0] = calls[0]();
  for (std::thread& thread : threads) thread.join();
  Status first;
  for (Status& result : results) keep_first(first, std::move(result));
  return first;
}

}  // namespace

Group& Group::of_this_thread() {
  thread_local Group group;
  return group;
}

Status Group::end() {
  if (depth_ == 0) {
    return error(ErrorCode::FailedPrecondition, Reason::BadValue,
                 "arcGroupEnd without arcGroupStart");
  }
  if (--depth_ > 0) return {};
  const auto begin = Deadline::Clock::now();
  Status first = run_together(std::exchange(creations_, {}));
  const std::vector<Collected> operations = std::exchange(operations_, {});
  std::set<std::shared_ptr<Session>> sessions;
  for (const Collected& each : operations) {
    sessions.insert(each.operation->member->session);  // before a waiting thread may end it
    client::start(*each.operation, Deadline(begin).plus(each.timeout), Teller::Group);
  }
  for (const Collected& each : operations) {
    if (each.blocking) keep_first(first, finish(*each.operation, Teller::Group));
  }
  // Once: to a daemon that is stopped, telling each by itself would add up past all deadlines. Of
  // several sessions all but one are lost, and have nobody to tell.
  for (const std::shared_ptr<Session>& session : sessions) session->tell_aborts();
  keep_first(first, run_together(std::exchange(destructions_, {})));
  return first;
}

}  // namespace arcomm::client

#include "client/src/session/session.h"

#include <errno.h>  // program_invocation_short_name
#include <time.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "client/src/session/fork.h"

namespace arcomm::client {
namespace {

std::atomic<std::uint64_t> next_serial{1};
constexpr std::int64_t kCheckEveryNs = 1'000'000;

// As of the last timer interrupt, 1 to 10 ms ago: a quarter of what the precise clock costs, which
// on virtual machines is a tenth of a small operation.
std::int64_t coarse_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct LiveSessions {
  std::mutex mutex;
  std::vector<std::weak_ptr<Session>> sessions;
};
LiveSessions& live() {
  static auto* sessions = new LiveSessions;  // never destroyed: threads may outlive main
  return *sessions;
}

}  // namespace

Result<std::shared_ptr<Session>> Session::attach(const std::string& runtime_dir,
                                                 const std::string& device, Deadline deadline) {
  watch_for_fork();
  auto control = std::make_unique<NodeControl>(runtime_dir + "/client.sock");
  Result<Attached> attached = control->attach(device, program_invocation_short_name, deadline);
  if (!attached) return std::move(attached).error();
  Result<std::unique_ptr<FdChannel>> descriptors =
      FdChannel::open(runtime_dir + "/fd.sock", attached->key, deadline);
  if (!descriptors) return std::move(descriptors).error();
  Result<std::vector<UniqueFd>> fds = (*descriptors)->fetch(attached->fd_ticket, 2, deadline);
  if (!fds) return std::move(fds).error();
  Result<ring::Segment> segment = ring::Segment::open(std::move((*fds)[0]));
  if (!segment) return std::move(segment).error();
  std::shared_ptr<Session> session(new Session(std::move(*attached), std::move(control),
                                               std::move(*descriptors), std::move(*segment),
                                               std::move((*fds)[1])));
  if (session->attached_.on_gpus) {
    Result<std::unique_ptr<GpuSession>> gpus =
        GpuSession::open({.control = *session->control_,
                          .descriptors = *session->descriptors_,
                          .attached = session->attached_,
                          .submission = session->submission_,
                          .waiting = session->waiting_});
    if (!gpus) {
      session->detach(deadline);
      return std::move(gpus).error();
    }
    session->gpus_ = std::move(*gpus);
  }
  const std::lock_guard lock(live().mutex);
  std::erase_if(live().sessions, [](const auto& entry) { return entry.expired(); });
  live().sessions.push_back(session);
  return session;
}

std::shared_ptr<Session> Session::by_serial(std::uint64_t serial) {
  const std::lock_guard lock(live().mutex);
  for (const std::weak_ptr<Session>& entry : live().sessions) {
    std::shared_ptr<Session> session = entry.lock();
    if (session && session->serial_ == serial) return session;
  }
  return nullptr;
}

std::vector<std::shared_ptr<Session>> Session::all() {
  const std::lock_guard lock(live().mutex);
  std::vector<std::shared_ptr<Session>> sessions;
  for (const std::weak_ptr<Session>& entry : live().sessions) {
    if (std::shared_ptr<Session> session = entry.lock()) sessions.push_back(std::move(session));
  }
  return sessions;
}

Session::Session(Attached attached, std::unique_ptr<NodeControl> control,
                 std::unique_ptr<FdChannel> descriptors, ring::Segment segment, UniqueFd doorbell)
    : serial_(next_serial.fetch_add(1, std::memory_order_relaxed)),
      attached_(std::move(attached)),
      control_(std::move(control)),
      descriptors_(std::move(descriptors)),
      staging_(*control_, *descriptors_, attached_.key),
      aborts_(
          [this](MemberId member, Deadline deadline) { return abort_at_daemon(member, deadline); }),
      submission_({.segment = std::move(segment),
                   .doorbell = std::move(doorbell),
                   .max_in_flight = attached_.max_in_flight,
                   .descriptors = *descriptors_,
                   .staging = staging_,
                   .aborts = aborts_}),
      waiting_(submission_) {}

Session::~Session() = default;

void Session::check() {
  submission_.check();
  if (gpus_ && lost()) gpus_->close_members(submission_.loss());
}

void Session::check_now_and_then() {
  const std::int64_t now = coarse_ns();
  if (now - checked_at_ns_.load(std::memory_order_relaxed) < kCheckEveryNs) return;
  checked_at_ns_.store(now, std::memory_order_relaxed);
  check();
}

Status Session::abort_at_daemon(MemberId member, Deadline deadline) {
  if (lost()) return {};
  Status told = control_->abort_communicator(key(), member,
                                             "an operation failed part-way on this rank", deadline);
  // Whatever else went wrong, no descriptor left for a socket say, passes.
  if (!told && is_gone(told.error())) return {};
  return told;
}

void Session::detach(Deadline deadline) {
  if (!lost()) static_cast<void>(control_->detach(key(), deadline));
  const Error why = error(ErrorCode::FailedPrecondition, Reason::UnknownHandle,
                          "the library was finalized while this was in use");
  submission_.close(why);
  if (gpus_) gpus_->close_members(why);
}

}  // namespace arcomm::client

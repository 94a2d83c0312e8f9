#include "client/src/session/communicator.h"

#include <sys/random.h>

#include <cerrno>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "client/src/gpu/gpu_member.h"
#include "client/src/host/in_call/in_call_path.h"
#include "client/src/session/library.h"
#include "proto/meeting_address.h"

namespace arcomm::client {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRetry{10};
constexpr milliseconds kAskEvery{5};
constexpr milliseconds kAskFor{50};
constexpr milliseconds kAddressWithin{1000};  // an id is needed with a daemon that hangs, too

// The session, rather than the request, was at fault: worth a new session.
bool session_failed(const Error& why) {
  return why.reason == Reason::DaemonLost || why.reason == Reason::NotRunning ||
         why.reason == Reason::ShuttingDown || why.code == ErrorCode::Unauthenticated ||
         (why.code == ErrorCode::NotFound && why.reason == Reason::UnknownHandle);
}

Result<std::unique_ptr<InCallPath>> open_in_call_path(Session& session,
                                                      const CreatedCommunicator& created, int rank,
                                                      const LaunchTable& launches,
                                                      Deadline deadline) {
  const InCallLayout layout(launches.ranks(), launches.most_in_call_bytes());
  if (launches.most_in_call_bytes() == 0 || created.exchange_bytes != layout.bytes())
    return error(ErrorCode::Internal, Reason::Corrupt, "the daemon gave ", created.exchange_bytes,
                 " bytes for calls to meet in, where its launch table asks for ", layout.bytes());
  const Result<std::vector<UniqueFd>> memory =
      session.descriptors().fetch(created.fd_ticket, 1, deadline);
  if (!memory) return memory.error();
  return InCallPath::open(memory->front(), rank, layout);
}

}  // namespace

CommunicatorTable& communicators() {
  static auto* table = new CommunicatorTable;  // never destroyed: threads may outlive main
  return *table;
}

UniqueId make_unique_id() {
  UniqueId id{};
  // 128 bytes come whole once the kernel's generator is ready, as it is after boot; EINTR only
  // before.
  while (::getrandom(id.data(), id.size(), 0) < 0 && errno == EINTR) {
  }
  // So that nodes need not agree on where to meet. Without it they choose by the id's hash.
  write_meeting_address(std::as_writable_bytes(std::span(id)),
                        Library::instance().peer_address(Deadline::after(kAddressWithin)));
  return id;
}

Result<std::shared_ptr<Communicator>> Communicator::create(const UniqueId& id, int ranks, int rank,
                                                           const CommunicatorConfig& config,
                                                           std::shared_ptr<Gpu> gpu) {
  std::shared_ptr<Communicator> made(new Communicator(id, ranks, rank, config, std::move(gpu)));
  Result<std::shared_ptr<Member>> member =
      made->join(Library::instance().control_deadline(), false);
  if (!member) return std::move(member).error();
  made->member_ = std::move(*member);
  return made;
}

Communicator::~Communicator() {
  if (member_) {
    member_->session->submission().remove(*member_, error(ErrorCode::Aborted, Reason::UnknownHandle,
                                                          "the communicator was released"));
  }
}

Result<std::shared_ptr<Member>> Communicator::join(Deadline deadline, bool again) {
  for (;;) {
    Result<std::shared_ptr<Session>> session = Library::instance().session(deadline);
    if (!session) return std::move(session).error();
    GpuSession* const gpus = (*session)->gpus();
    if (gpus != nullptr && !gpu_) {
      Result<std::shared_ptr<Gpu>> current = gpus->current();
      if (!current) return std::move(current).error();
      gpu_ = std::move(*current);
    }
    // What rank 0's process says counts.
    Result<std::uint64_t> most_in_call_bytes = std::uint64_t{0};
    if (gpus == nullptr && rank_ == 0) most_in_call_bytes = most_in_call_bytes_asked();
    if (!most_in_call_bytes) return std::move(most_in_call_bytes).error();
    const auto left = std::chrono::ceil<milliseconds>(deadline.left());
    Result<CreatedCommunicator> created = (*session)->control().create_communicator(
        (*session)->key(),
        {.unique_id = {id_.data(), id_.size()},
         .rank = rank_,
         .ranks = ranks_,
         .timeout_ms = static_cast<std::uint64_t>(std::max<std::int64_t>(left.count(), 1)),
         .device = gpus != nullptr ? std::string_view(gpu_->uuid()) : std::string_view(),
         .visible_gpus = gpus != nullptr ? gpus->visible() : std::vector<std::string>(),
         .in_stream_hindrance =
             gpus != nullptr ? gpus->in_stream_hindrance() : InStreamHindrance::None,
         .default_coding = config_.all_reduce,
         .most_sms = config_.most_sms,
         .most_in_call_bytes = *most_in_call_bytes},
        deadline.plus(kGuard));
    if (created) {
      auto member = std::make_shared<Member>();
      member->session = *session;
      member->id = created->member;
      member->epoch = created->epoch;
      member->rank = rank_;
      member->segment_limit_bytes = created->segment_limit_bytes != 0
                                        ? created->segment_limit_bytes
                                        : (*session)->facts().segment_limit_bytes;
      member->default_coding = config_.all_reduce;
      // Of a daemon of another version nobody can say what pays: then nothing does.
      if (Result<LaunchTable> launches = LaunchTable::decode(created->launch_table);
          launches && gpus == nullptr)
        member->launches = std::move(*launches);
      if (gpus == nullptr && created->exchange_bytes != 0) {
        Result<std::unique_ptr<InCallPath>> in_call =
            open_in_call_path(**session, *created, rank_, member->launches, deadline.plus(kGuard));
        if (!in_call) {
          static_cast<void>((*session)->control().destroy_communicator(
              (*session)->key(), created->member, deadline.plus(kGuard)));
          return std::move(in_call).error();
        }
        member->in_call = std::move(*in_call);
      }
      if (gpus != nullptr) {
        Result<std::shared_ptr<GpuMember>> on_gpu =
            gpus->join(gpu_, *created, static_cast<std::uint32_t>(rank_),
                       static_cast<std::uint32_t>(ranks_), deadline.plus(kGuard));
        // A default codec's kernels come now, while nothing of the communicator waits on the GPU.
        Status loaded = on_gpu ? (*on_gpu)->prepare_codec(config_.all_reduce.codec)
                               : Status(std::move(on_gpu).error());
        if (!loaded) {
          static_cast<void>((*session)->control().destroy_communicator(
              (*session)->key(), created->member, deadline.plus(kGuard)));
          return std::move(loaded).error();
        }
        member->gpu = std::move(*on_gpu);
      }
      (*session)->submission().add(*member);
      return member;
    }
    // A rebuild may be faster than the daemon's clearing up of the previous epoch.
    const bool too_early = again && created.error().code == ErrorCode::AlreadyExists;
    if ((!too_early && !session_failed(created.error())) || deadline.left() <= kRetry) {
      return std::move(created).error();
    }
    std::this_thread::sleep_for(kRetry);
  }
}

std::uint64_t Communicator::epoch() const {
  const std::lock_guard lock(mutex_);
  return member_->epoch;
}

std::shared_ptr<Member> Communicator::member() const {
  const std::lock_guard lock(mutex_);
  return member_;
}

Error Communicator::state() {
  const std::shared_ptr<Member> member = this->member();
  Session& session = *member->session;
  session.check();
  if (session.lost()) return session.submission().loss();
  const auto now = Deadline::Clock::now();
  bool was_asked_just_now = false;
  {
    const std::lock_guard lock(mutex_);
    if (asked_.code != ErrorCode::Ok) return asked_;
    was_asked_just_now = now - asked_at_ < kAskEvery;
    if (!was_asked_just_now) asked_at_ = now;
  }
  // The GPU is asked every time: a caller that has synchronized a stream wants to know of it.
  Error said = member->gpu ? member->gpu->look() : Error{ErrorCode::Ok, Reason::None, "", kNoRank};
  if (said.code == ErrorCode::Ok && was_asked_just_now) return said;
  const Result<Described> described =
      session.control().describe(session.key(), member->id, Deadline::after(kAskFor));
  if (described && described->reason != Reason::None) {
    if (said.code == ErrorCode::Ok) {
      // A mailbox says it by the time that its GPU has the word: with the code of what happened.
      const bool was_late = member->gpu && (described->reason == Reason::Crossed ||
                                            described->reason == Reason::Timeout);
      said = error(was_late ? ErrorCode::DeadlineExceeded : ErrorCode::Aborted, described->reason,
                   "the communicator is ", described->state);
      said.rank = described->culprit;
    } else {
      if (described->reason == Reason::Crossed) said.reason = described->reason;
      said.message += "; the communicator is " + described->state;
    }
  } else if (said.code == ErrorCode::Ok && !described &&
             described.error().code != ErrorCode::DeadlineExceeded) {
    said = described.error();
  } else if (said.code == ErrorCode::Ok) {
    said = session.submission().failure_of(*member);  // this rank may know before the daemon does
  }
  const std::lock_guard lock(mutex_);
  if (member_ == member) asked_ = said;
  return said;
}

Status Communicator::leave(const Error& why, Deadline deadline) {
  const std::shared_ptr<Member> member = this->member();
  Session& session = *member->session;
  session.submission().remove(*member, why);
  session.check();  // a call may have met the loss before any wait did
  Status left = leave_daemon(*member, deadline);
  if (!member->gpu) return left;
  // A graph may still be replayed; it must find the communicator ended, not wait for it.
  member->gpu->close(why);
  if (left && !session.lost()) left = member->gpu->drop_plans(deadline);
  return left;
}

Status Communicator::leave_daemon(const Member& member, Deadline deadline) {
  Session& session = *member.session;
  if (session.lost() && session.submission().loss().reason == Reason::DaemonLost) return {};
  for (;;) {
    const Status gone = session.control().destroy_communicator(session.key(), member.id, deadline);
    if (gone || is_gone(gone.error())) return {};
    if (gone.error().reason != Reason::ShuttingDown || deadline.left() <= kRetry) {
      return error(gone.error().code, gone.error().reason, "the daemon did not confirm that rank ",
                   rank_, " left epoch ", member.epoch,
                   ", whose operations may still write to their buffers; try again (",
                   gone.error().message, ")");
    }
    std::this_thread::sleep_for(kRetry);
  }
}

Status Communicator::rebuild() {
  const Deadline deadline = Library::instance().control_deadline();
  ARC_RETURN_IF_ERROR(leave(
      error(ErrorCode::Aborted, Reason::Revoked, "the communicator is being rebuilt"), deadline));
  Result<std::shared_ptr<Member>> member = join(deadline, true);
  if (!member) return std::move(member).error();
  {
    const std::lock_guard lock(mutex_);
    member_ = std::move(*member);
    asked_ = Error{ErrorCode::Ok, Reason::None, "", -1};
    asked_at_ = {};
    communicators().note_change();  // who sees it waits here, and finds the new member
  }
  return {};
}

Status Communicator::destroy() {
  const Deadline deadline = Library::instance().control_deadline();
  const std::shared_ptr<Member> member = this->member();
  const bool idle = member->session->waiting().wait_until_idle(*member, deadline);
  Status left = leave(
      error(ErrorCode::Aborted, Reason::RemoteAborted, "the communicator was destroyed"), deadline);
  if (idle) return left;
  return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "operations of rank ", rank_,
               " had not ended when its communicator was destroyed");
}

Status Communicator::abort() {
  const std::shared_ptr<Member> member = this->member();
  Session& session = *member->session;
  const Deadline deadline = Library::instance().control_deadline();
  Status told;
  if (member->gpu) {
    Error why =
        error(ErrorCode::Aborted, Reason::RemoteAborted, "this process aborted the communicator");
    why.rank = rank_;
    member->gpu->close(why);
  }
  session.check();
  if (!session.lost()) {
    told =
        session.control().abort_communicator(session.key(), member->id, "arcCommAbort", deadline);
  }
  session.submission().remove(*member, error(ErrorCode::Aborted, Reason::RemoteAborted,
                                             "this process aborted the communicator"));
  // The daemon ends what is in flight at once; tickets stay valid and say so.
  session.waiting().wait_until_idle(*member, deadline.earlier(Deadline::after(milliseconds(500))));
  if (!session.lost()) {
    static_cast<void>(session.control().destroy_communicator(session.key(), member->id, deadline));
    if (member->gpu) static_cast<void>(member->gpu->drop_plans(deadline));
  }
  if (!told && session_failed(told.error())) return {};  // nobody is left to be told
  return told;
}

}  // namespace arcomm::client

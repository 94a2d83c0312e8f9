#include "daemon/control/calls/communicators/communicator_calls.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "proto/text.h"
#include "proto/types.h"

namespace arcomm {
namespace {

constexpr std::size_t kWhyBytes = 200;  // of what a client says to its peers
constexpr int kMostVisibleGpus = 256;   // more than a machine has, its parts (MIG) included

// Before anything is kept of it while the call waits for the other ranks.
Status check_visible_gpus(const v1::CreateCommunicatorRequest& request) {
  if (request.visible_gpus_size() > kMostVisibleGpus) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "rank ", request.rank(), " names ",
                 request.visible_gpus_size(), " GPUs that its process sees: ", kMostVisibleGpus,
                 " is the most");
  }
  for (const std::string& gpu : request.visible_gpus()) {
    if (gpu.size() <= kNameBytes) continue;
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "rank ", request.rank(),
                 " names a GPU that its process sees by ", gpu.size(), " bytes: ", kNameBytes,
                 " is the most that a name has");
  }
  return {};
}

Error unknown_member(std::uint64_t bits, SessionId session) {
  return error(ErrorCode::NotFound, Reason::UnknownHandle, "communicator member ",
               MemberId::from_bits(bits), " is not one of session ", session);
}

}  // namespace

void CommunicatorCalls::create_communicator(const Caller& caller,
                                            const v1::CreateCommunicatorRequest& request,
                                            Answer<v1::CreateCommunicatorReply> answer) {
  if (Status stopping = state_.refuse_when_stopping(); !stopping) return answer(stopping.error());
  const Result<SessionEntry*> session = state_.authorize(caller, request.session());
  if (!session) return answer(session.error());
  Rendezvous::Call call;
  if (request.unique_id().size() != call.unique_id.size()) {
    return answer(error(ErrorCode::InvalidArgument, Reason::BadValue, "a unique id has ",
                        call.unique_id.size(), " bytes; this one has ",
                        request.unique_id().size()));
  }
  if (const Status named = check_visible_gpus(request); !named) return answer(named.error());
  const Result<std::string> gpu = state_.devices.gpu_of(**session, request.device());
  if (!gpu) return answer(gpu.error());
  call.on_gpu = state_.worker_of(**session).on_gpus();
  if (call.on_gpu && std::cmp_greater(request.ranks(), kMaxGpuRanks)) {
    return answer(error(ErrorCode::Unimplemented, Reason::Unsupported,
                        "a communicator on GPUs has "
                        "1 to ",
                        kMaxGpuRanks, " ranks, one to a GPU, not ", request.ranks()));
  }
  std::memcpy(call.unique_id.data(), request.unique_id().data(), call.unique_id.size());
  const std::uint64_t asked_ms =
      request.timeout_ms() == 0 ? state_.settings->comm.join_timeout_ms : request.timeout_ms();
  call.serial = caller.call;
  call.rank = request.rank();
  call.ranks = request.ranks();
  call.session = (*session)->id;
  call.peer = (*session)->peer;
  call.worker = (*session)->worker;
  call.device = call.on_gpu ? *gpu : state_.devices.workers()[call.worker].device;
  call.visible_gpus.assign(request.visible_gpus().begin(), request.visible_gpus().end());
  call.in_stream_abi = request.in_stream_abi();
  call.in_stream_hindrance = static_cast<InStreamHindrance>(request.in_stream_hindrance());
  call.launch_table_version = request.launch_table_version();
  call.most_in_call_bytes = request.most_in_call_bytes();
  if (call.on_gpu) call.most_sms = request.most_sms();
  call.default_coding = {
      .codec = static_cast<Codec>(request.default_codec()),
      .error_class = {request.default_least_snr_db(), request.default_most_relative_error()}};
  const char* fault = request.default_codec() > 0xff ? "the codec is out of range"
                                                     : find_fault(call.default_coding);
  if (fault != nullptr) {
    return answer(error(ErrorCode::InvalidArgument, Reason::BadValue, "rank ", request.rank(),
                        "'s default: ", fault));
  }
  call.called_at = std::chrono::steady_clock::now();
  call.deadline = call.called_at +
                  std::chrono::milliseconds(std::min(asked_ms, state_.settings->op.max_timeout_ms));
  joins_.join(**session, std::move(call), std::move(answer));
}

void CommunicatorCalls::destroy_communicator(const Caller& caller,
                                             const v1::DestroyCommunicatorRequest& request,
                                             Answer<v1::Empty> answer) {
  const Result<SessionEntry*> session = state_.authorize(caller, request.session());
  if (!session) return answer(session.error());
  const SessionId id = (*session)->id;
  const MemberId member = MemberId::from_bits(request.member());
  const auto held = (*session)->members.find(member);
  if (held == (*session)->members.end()) return answer(unknown_member(request.member(), id));
  joins_.revoked(held->second.unique_id, held->second.epoch);
  state_.worker_of(**session).leave_communicator(
      id, member,
      state_.replies.on_loop<void>(
          "leave the communicator",
          [this, id, member, answer = std::move(answer)](const Status& status) {
            SessionEntry* now = state_.ledger.find(id);
            if (now != nullptr && (status || status.error().code == ErrorCode::NotFound))
              now->members.erase(member);
            answer(empty_or(status));
          },
          [this, id, member](const Status&) {
            if (SessionEntry* now = state_.ledger.find(id); now != nullptr)
              now->members.erase(member);
          }));
}

void CommunicatorCalls::abort_communicator(const Caller& caller,
                                           const v1::AbortCommunicatorRequest& request,
                                           Answer<v1::Empty> answer) {
  const Result<SessionEntry*> session = state_.authorize(caller, request.session());
  if (!session) return answer(session.error());
  const auto held = (*session)->members.find(MemberId::from_bits(request.member()));
  if (held == (*session)->members.end()) {
    return answer(unknown_member(request.member(), (*session)->id));
  }
  joins_.revoked(held->second.unique_id, held->second.epoch);
  state_.worker_of(**session).abort_communicator(
      (*session)->id, held->first, safe_text(request.why(), kWhyBytes),
      state_.replies.on_loop<void>(
          "abort the communicator",
          [answer = std::move(answer)](const Status& status) { answer(empty_or(status)); }));
}

void CommunicatorCalls::take_back(const Caller& caller, const v1::SessionRef& session,
                                  const v1::CreateCommunicatorReply& unheard) {
  if (const Result<SessionEntry*> owner = state_.authorize(caller, session); owner) {
    Result<std::vector<UniqueFd>> mailbox = state_.ledger.take_ticket(**owner, unheard.fd_ticket());
    for (std::size_t i = 0; mailbox && i < mailbox->size(); ++i)
      state_.memory_closer.close(std::move((*mailbox)[i]));
  }
  v1::DestroyCommunicatorRequest destroy;
  *destroy.mutable_session() = session;
  destroy.set_member(unheard.member());
  destroy_communicator(caller, destroy, [](const Result<v1::Empty>&) {});
}

void CommunicatorCalls::describe(const Caller& caller, const v1::DescribeRequest& request,
                                 Answer<v1::DescribeReply> answer) {
  const Result<SessionEntry*> session = state_.authorize(caller, request.session());
  if (!session) return answer(session.error());
  v1::DescribeReply reply;
  reply.set_state("open");
  reply.set_culprit_rank(kNoRank);
  if (request.member() == 0) return answer(reply);
  const auto held = (*session)->members.find(MemberId::from_bits(request.member()));
  if (held == (*session)->members.end()) {
    return answer(unknown_member(request.member(), (*session)->id));
  }
  auto reply_with = [reply, rank = held->second.rank,
                     answer = std::move(answer)](Result<CommunicatorSnapshot> found) {
    if (!found) return answer(found.error());
    v1::DescribeReply filled = reply;
    filled.set_state(found->state);
    filled.set_reason(static_cast<std::uint32_t>(found->reason));
    filled.set_culprit_rank(found->culprit);
    filled.set_epoch(found->epoch);
    for (const RankSnapshot& one : found->ranks) {
      if (one.rank == rank) filled.set_next_seq(one.next_seq);
    }
    answer(filled);
  };
  state_.worker_of(**session).describe((*session)->id, held->first,
                                       state_.replies.on_loop<CommunicatorSnapshot>(
                                           "describe the communicator", std::move(reply_with)));
}

}  // namespace arcomm

#include "daemon/control/node_control.h"

#include <utility>

namespace arcomm {

NodeControl::NodeControl(Parts parts)
    : state_(parts.loop, parts.metrics, std::move(parts.settings), std::move(parts.workers)),
      fair_prefault_(
          {.loop = state_.loop,
           .thread = parts.memory_thread,
           .closer = state_.memory_closer,
           .promised = [this] { return state_.quotas.total(QuotaKind::UnfilledBytes); }}),
      groups_(state_.ledger, fair_prefault_),
      joins_(state_, groups_),
      communicators_(state_, joins_),
      buffers_(state_, fair_prefault_, groups_),
      plans_(state_),
      answers_(state_, buffers_, plans_),
      sessions_({.state = state_,
                 .kept_rings = parts.kept_rings,
                 .joins = joins_,
                 .buffers = buffers_,
                 .groups = groups_}) {}

void NodeControl::use_peers(PeerMessenger& peers, LinkMaker& links) {
  state_.peers = &peers;
  meetings_.emplace(Meetings::Parts{
      .loop = state_.loop,
      .rendezvous = joins_.rendezvous(),
      .peers = peers,
      .links = links,
      .name_of_worker =
          [this](std::size_t worker) { return state_.devices.workers()[worker].device; },
      .policy =
          [this] {
            return NetworkPolicy::from(*state_.settings, state_.network->step_bytes(),
                                       state_.network->bytes_per_second());
          }});
}

void NodeControl::use_network_tuning(std::shared_ptr<const NetworkTuning> tuning) {
  state_.network = std::move(tuning);
}

void NodeControl::use_tuning(std::shared_ptr<const TuningTable> tuning) {
  state_.tuning = std::move(tuning);
}

void NodeControl::leave_peers() {
  meetings_.reset();
  state_.peers = nullptr;
}

void NodeControl::attach(const Caller& caller, const v1::AttachRequest& request,
                         Answer<v1::AttachReply> answer) {
  sessions_.attach(caller, request, std::move(answer));
}

void NodeControl::create_communicator(const Caller& caller,
                                      const v1::CreateCommunicatorRequest& request,
                                      Answer<v1::CreateCommunicatorReply> answer) {
  communicators_.create_communicator(caller, request, std::move(answer));
}

void NodeControl::cancel_communicator(std::uint64_t call) {
  joins_.cancel(call);
}

void NodeControl::destroy_communicator(const Caller& caller,
                                       const v1::DestroyCommunicatorRequest& request,
                                       Answer<v1::Empty> answer) {
  communicators_.destroy_communicator(caller, request, std::move(answer));
}

void NodeControl::abort_communicator(const Caller& caller,
                                     const v1::AbortCommunicatorRequest& request,
                                     Answer<v1::Empty> answer) {
  communicators_.abort_communicator(caller, request, std::move(answer));
}

void NodeControl::allocate_buffer(const Caller& caller, const v1::AllocateBufferRequest& request,
                                  Answer<v1::BufferReply> answer) {
  buffers_.allocate_buffer(caller, request, std::move(answer));
}

void NodeControl::cancel_allocation(std::uint64_t call) {
  buffers_.cancel_allocation(call);
}

void NodeControl::register_buffer(const Caller& caller, const v1::RegisterBufferRequest& request,
                                  Answer<v1::BufferReply> answer) {
  buffers_.register_buffer(caller, request,
                           answers_.remembered(caller, request.session(), std::move(answer)));
}

void NodeControl::release_buffer(const Caller& caller, const v1::ReleaseBufferRequest& request,
                                 Answer<v1::Empty> answer) {
  buffers_.release_buffer(caller, request, std::move(answer));
}

void NodeControl::create_plan(const Caller& caller, const v1::CreatePlanRequest& request,
                              Answer<v1::CreatePlanReply> answer) {
  plans_.create_plan(caller, request,
                     answers_.remembered(caller, request.session(), std::move(answer)));
}

void NodeControl::destroy_plan(const Caller& caller, const v1::DestroyPlanRequest& request,
                               Answer<v1::Empty> answer) {
  plans_.destroy_plan(caller, request, std::move(answer));
}

void NodeControl::take_back(const Caller& caller, const v1::TakeBackRequest& request,
                            const Answer<v1::Empty>& answer) {
  answers_.take_back(caller, request, answer);
}

void NodeControl::describe(const Caller& caller, const v1::DescribeRequest& request,
                           Answer<v1::DescribeReply> answer) {
  communicators_.describe(caller, request, std::move(answer));
}

void NodeControl::detach(const Caller& caller, const v1::DetachRequest& request,
                         Answer<v1::Empty> answer) {
  sessions_.detach(caller, request, std::move(answer));
}

void NodeControl::take_back(const Caller& caller, const v1::SessionRef& session,
                            const v1::BufferReply& unheard) {
  buffers_.take_back(caller, session, unheard);
}

void NodeControl::take_back(const Caller& caller, const v1::SessionRef& session,
                            const v1::CreatePlanReply& unheard) {
  plans_.take_back(caller, session, unheard);
}

void NodeControl::take_back(const Caller& caller, const v1::SessionRef& session,
                            const v1::CreateCommunicatorReply& unheard) {
  communicators_.take_back(caller, session, unheard);
}

void NodeControl::connection_hung_up(ConnectionNumber connection) {
  sessions_.connection_hung_up(connection);
}

void NodeControl::on_descriptor_release(std::function<void(uid_t)> released) {
  sessions_.on_descriptor_release(std::move(released));
}

void NodeControl::session_lost(SessionId session, Reason reason, const std::string& why) {
  sessions_.lost(session, reason, why);
}

void NodeControl::communicator_revoked(const UniqueIdBytes& unique_id, std::uint64_t epoch,
                                       const std::string& why) {
  joins_.revoked(unique_id, epoch, why);
}

void NodeControl::use_settings(std::shared_ptr<const Settings> settings) {
  state_.use_settings(std::move(settings));
}

void NodeControl::begin_shutdown() {
  state_.stopping = true;
  joins_.refuse_all(state_.refuse_when_stopping().error());
}

}  // namespace arcomm

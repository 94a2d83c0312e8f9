// From a checked CreateCommunicator call to its answer: the charge, the rendezvous with the other
// ranks and its deadlines, the seat in the session, on GPUs a ticket for the rank's mailbox. Owns
// the rendezvous. Thread: the control loop. Every call is answered exactly once.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>

#include "daemon/control/calls/session_groups.h"
#include "daemon/control/control_state.h"
#include "daemon/control/rendezvous/rendezvous.h"

namespace arcomm {

class CommunicatorJoins {
 public:
  CommunicatorJoins(ControlState& state, SessionGroups& groups);

  // `call` is complete but for its answer and the segment limit.
  void join(SessionEntry& session, Rendezvous::Call call,
            Answer<v1::CreateCommunicatorReply> answer);
  // The caller of that join (Rendezvous::Call::serial) no longer listens.
  void cancel(std::uint64_t call);

  // The communicator of this epoch is no longer usable.
  void revoked(const UniqueIdBytes& unique_id, std::uint64_t epoch, const std::string& why = {});
  void session_gone(SessionId session, pid_t pid, Reason reason);
  void refuse_all(const Error& why);  // that wait

  const Rendezvous& rendezvous() const { return rendezvous_; }
  Rendezvous& rendezvous() { return rendezvous_; }

 private:
  // On the GPU that it names.
  Status take_places(const SessionEntry& session, Rendezvous::Call& call, HeldMember& member);
  // Its process pays for memory in which the calls of all ranks meet, if they are all here.
  bool may_pay_for_in_call(const Rendezvous::Call& call) const;
  // Enters, once it is known whether an earlier holder of its rank is still there.
  void replace_earlier(Rendezvous::Call call);
  void enter(Rendezvous::Call call);
  void arm_sweep();
  void leave(std::size_t worker, SessionId session, MemberId member);
  // member: whom it is for and what it was charged.
  // gets_ticket: it was promised.
  Rendezvous::Answer joined(const Rendezvous::Call& call, HeldMember member, bool gets_ticket,
                            Answer<v1::CreateCommunicatorReply> answer);
  void drop(Result<MailboxDescriptors> mailbox);  // that nobody will fetch
  // GPU workers: the reply with a ticket for the rank's mailbox.
  void hand_over_mailbox(SessionEntry& owner, MemberId member, v1::CreateCommunicatorReply reply,
                         const Answer<v1::CreateCommunicatorReply>& answer);
  // Workers on the host: the reply with its table, and memory for calls to meet in where there is
  // any.
  Status hand_over_in_call(SessionEntry& session, HeldMember& member,
                           const Rendezvous::Joined& joined, std::uint64_t most_in_call_bytes,
                           v1::CreateCommunicatorReply& reply);
  void count();

  ControlState& state_;
  SessionGroups& groups_;
  Rendezvous rendezvous_;
  std::optional<EventLoop::TimerKey> sweep_;   // at the earliest deadline, when armed
  std::unordered_set<std::uint64_t> looking_;  // calls that wait for the worker before they join
};

}  // namespace arcomm

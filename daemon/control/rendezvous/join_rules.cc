#include "daemon/control/rendezvous/join_rules.h"

#include <sstream>

namespace arcomm {
namespace {

const LocalMeeting::Call* same_gpu(const WaitingCalls& calls, const LocalMeeting::Call& newcomer) {
  if (!newcomer.on_gpu) return nullptr;
  for (const auto& [rank, call] : calls) {
    if (call.device == newcomer.device) return &call;
  }
  return nullptr;
}

}  // namespace

std::optional<Error> disagreement(const WaitingCalls& calls, int ranks,
                                  const LocalMeeting::Call& newcomer) {
  std::optional<Error> why;
  if (ranks != newcomer.ranks) {
    why = error(ErrorCode::InvalidArgument, Reason::Mismatch,
                "the ranks disagree about their number: rank ", calls.begin()->first, " says ",
                ranks, " and rank ", newcomer.rank, " says ", newcomer.ranks);
  } else if (!calls.empty() && calls.begin()->second.worker != newcomer.worker) {
    const LocalMeeting::Call& other = calls.begin()->second;
    return error(ErrorCode::Unimplemented, Reason::Unsupported, "rank ", other.rank, " is on ",
                 other.device, " and rank ", newcomer.rank, " on ", newcomer.device,
                 ": a communicator's ranks are all on GPUs or all on the host");
  } else if (newcomer.on_gpu && newcomer.launch_table_version != kLaunchTableVersion) {
    // It would take ways of its own, and the others would wait for it.
    why = error(ErrorCode::FailedPrecondition, Reason::Version, "rank ", newcomer.rank, " (pid ",
                newcomer.peer.pid, ") has a libarclient that reads launch tables of version ",
                newcomer.launch_table_version, ", and this daemon makes those of version ",
                kLaunchTableVersion, ": use a library and a daemon of one version");
  } else if (!calls.empty() && calls.begin()->second.default_coding != newcomer.default_coding) {
    const LocalMeeting::Call& other = calls.begin()->second;
    why = error(ErrorCode::InvalidArgument, Reason::Mismatch,
                "the ranks disagree about their default codec: rank ", other.rank, " says ",
                to_string(other.default_coding), " and rank ", newcomer.rank, " says ",
                to_string(newcomer.default_coding),
                ": give all ranks the same arcCommConfig_t.all_reduce");
  } else if (!calls.empty() && calls.begin()->second.most_sms != newcomer.most_sms) {
    const LocalMeeting::Call& other = calls.begin()->second;
    why = error(ErrorCode::InvalidArgument, Reason::Mismatch,
                "the ranks disagree about how many SMs their communicator may fill: rank ",
                other.rank, " says ", other.most_sms, " and rank ", newcomer.rank, " says ",
                newcomer.most_sms,
                " (0: no bound): give all ranks the same arcCommConfig_t.most_sms");
  } else if (const LocalMeeting::Call* other = same_gpu(calls, newcomer); other != nullptr) {
    why = error(ErrorCode::InvalidArgument, Reason::Mismatch, "ranks ", other->rank, " and ",
                newcomer.rank, " of this communicator are both on ", newcomer.device,
                ": give every rank a GPU of its own (arcInit or the communicator's device)");
  }
  if (why) why->rank = newcomer.rank;
  return why;
}

Error refuse_duplicate(const LocalMeeting::Call& call, SessionId holder, const char* state) {
  return error(ErrorCode::AlreadyExists, Reason::BadValue, "rank ", call.rank,
               " of this communicator ", state, " in session ", holder,
               ": give every rank its own number, or use a new unique id");
}

std::string absent(const WaitingCalls& calls, int ranks) {
  std::ostringstream text;
  int missing = 0;
  for (Rank rank = 0; rank < ranks; ++rank) {
    if (calls.contains(rank)) continue;
    text << (missing++ == 0 ? "" : ", ") << rank;
  }
  return (missing == 1 ? "rank " : "ranks ") + text.str() + " of " + std::to_string(ranks) +
         (missing == 1 ? " has not called" : " have not called");
}

Rank first_absent(const WaitingCalls& calls) {
  Rank rank = 0;
  while (calls.contains(rank)) ++rank;
  return rank;
}

}  // namespace arcomm

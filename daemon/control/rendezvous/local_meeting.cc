#include "daemon/control/rendezvous/local_meeting.h"

#include <algorithm>

#include "daemon/control/rendezvous/join_rules.h"

namespace arcomm {
namespace {

constexpr auto kAnswerBefore = std::chrono::milliseconds(50);

}  // namespace

bool LocalMeeting::has(SessionId session) const {
  const auto is_its = [session](const Live& member) { return member.session == session; };
  const auto calls_for_it = [session](const auto& call) { return call.second.session == session; };
  return std::ranges::any_of(members, is_its) || std::ranges::any_of(calls, calls_for_it);
}

const LocalMeeting::Live* LocalMeeting::find(Rank rank) const {
  const auto at = std::ranges::find(members, rank, &Live::rank);
  return at == members.end() ? nullptr : &*at;
}

bool LocalMeeting::same_tables() const {
  return std::ranges::all_of(calls, [](const auto& call) {
    return call.second.launch_table_version == kLaunchTableVersion;
  });
}

std::string LocalMeeting::missing() const {
  return (elsewhere.missing.empty() ? absent(calls, ranks) : elsewhere.missing) +
         (elsewhere.remark.empty() ? "" : "; " + elsewhere.remark);
}

LocalMeeting::Waiting LocalMeeting::waiting() const {
  const Call& first = calls.begin()->second;
  Waiting waiting{.uid = uid,
                  .ranks = ranks,
                  .worker = first.worker,
                  .epoch = epoch,
                  .segment_limit_bytes = segment_limit_bytes,
                  .on_gpu = first.on_gpu,
                  .same_tables = same_tables(),
                  .default_coding = first.default_coding,
                  .callers = {}};
  for (const auto& [rank, call] : calls)
    waiting.callers.push_back({rank, call.peer.pid, call.device, call.deadline});
  return waiting;
}

LocalMeeting::Forming LocalMeeting::forming() const {
  Forming one{.unique_id = {}, .epoch = epoch + 1, .ranks = ranks, .called = {}, .diagnosis = {}};
  for (const auto& [rank, call] : calls) {
    one.called.push_back({rank, call.session, call.peer.pid, call.called_at});
  }
  one.diagnosis = state == State::Building
                      ? "all ranks have called; the worker forms the communicator"
                  : state == State::Formed ? "formed here; other nodes do not have it yet"
                                           : missing();
  return one;
}

LocalMeeting::Part LocalMeeting::part_of_all() const {
  Part all;
  all.spec.epoch = epoch + 1;
  all.segment_limit_bytes = segment_limit_bytes;
  for (const auto& [rank, call] : calls) all.rank_devices.push_back(call.device);
  return all;
}

std::optional<Error> LocalMeeting::refuse(const Call& call) const {
  if (state == State::Ready) {
    if (const Live* holder = find(call.rank))
      return refuse_duplicate(call, holder->session, "is in use");
    if (call.rank < ranks) {
      const std::uint32_t node = part.spec.node_of_rank[static_cast<std::size_t>(call.rank)];
      return error(ErrorCode::AlreadyExists, Reason::BadValue, "rank ", call.rank,
                   " of this communicator is in use on node ", part.spec.nodes[node].name,
                   ": give every rank its own number, or use a new unique id");
    }
    return error(ErrorCode::InvalidArgument, Reason::Mismatch, "this communicator is ready with ",
                 ranks, " ranks and the call says ", call.ranks);
  }
  if (const auto taken = calls.find(call.rank); taken != calls.end())
    return refuse_duplicate(call, taken->second.session, "has already called");
  if (state == State::Building || state == State::Formed) {
    return error(ErrorCode::AlreadyExists, Reason::BadValue,
                 "this communicator is being built with ", ranks, " ranks; rank ", call.rank,
                 " comes too late");
  }
  return std::nullopt;
}

std::vector<std::pair<LocalMeeting::Answer, Error>> LocalMeeting::take_late(Clock::time_point now) {
  std::vector<std::pair<Answer, Error>> late;
  const std::string missing_now = missing();
  const Rank culprit = elsewhere.missing.empty() ? first_absent(calls) : elsewhere.culprit;
  for (auto call = calls.begin(); call != calls.end();) {
    if (call->second.deadline > now) {
      ++call;
      continue;
    }
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
        call->second.deadline - call->second.called_at);
    Error why = error(ErrorCode::DeadlineExceeded, Reason::Timeout, "rank ", call->first,
                      " waited ", waited.count(), " ms for the other ranks: ", missing_now);
    why.rank = culprit;
    late.emplace_back(std::move(call->second.answer), std::move(why));
    call = calls.erase(call);
  }
  return late;
}

CommunicatorSpec LocalMeeting::begin(Part wanted, std::function<void(const Status&)> when_formed) {
  state = State::Building;
  lost.reset();
  waits_on = false;
  unheard.clear();
  members.clear();
  formed = std::move(when_formed);
  worker = calls.begin()->second.worker;
  part = std::move(wanted);
  CommunicatorSpec spec = part.spec;
  spec.uid = uid;
  spec.default_coding = calls.begin()->second.default_coding;  // join_rules: everybody's
  spec.most_sms = calls.begin()->second.most_sms;              // this, too
  Clock::time_point deadline = part.deadline;
  for (const auto& [rank, call] : calls) {
    deadline = std::min(deadline, call.deadline);
    members.push_back({rank, call.session, {}, worker, spec.epoch});
    spec.ranks.push_back({.session = call.session,
                          .rank = rank,
                          .device = call.on_gpu ? call.device : std::string(),
                          .visible_gpus = call.visible_gpus,
                          .in_stream_abi = call.in_stream_abi,
                          .in_stream_hindrance = call.in_stream_hindrance,
                          .token = call.token});
  }
  // A caller that waits hears what it waited for.
  spec.deadline_ns = static_cast<std::uint64_t>(
      std::chrono::nanoseconds(deadline.time_since_epoch() - kAnswerBefore).count());
  return spec;
}

}  // namespace arcomm

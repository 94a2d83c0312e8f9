#include "daemon/control/calls/status/communicator_status.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "daemon/comm/unique_id.h"
#include "daemon/plan/codec_words.h"
#include "daemon/plan/launch_table_between_nodes.h"
#include "daemon/plan/launch_table_builder.h"

namespace arcomm {
namespace {

const char* text_of(LaunchPath path) {
  switch (path) {
    case LaunchPath::Resident:
      return "resident";
    case LaunchPath::Launched:
      return "launched";
    case LaunchPath::InStream:
      return "in-stream";
    case LaunchPath::Alone:
      return "alone";
    case LaunchPath::InCall:
      return "in-call";
  }
  return "unknown";
}

// Types that take the same ways are told together; what the last ones have in common is the rest.
void fill_launches(const LaunchTable& launches, v1::CommunicatorStatus& wire) {
  std::vector<std::pair<std::vector<LaunchStretch>, std::string>> ways;
  for (unsigned i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    std::vector<LaunchStretch> way = stretches_of(launches, dtype);
    const std::string name(arcomm::text_of(dtype));
    const auto same = std::ranges::find(ways, way, &decltype(ways)::value_type::first);
    if (same == ways.end()) {
      ways.emplace_back(std::move(way), name);
    } else {
      same->second += ", " + name;
    }
  }
  if (ways.size() == 1) ways.front().second = "all types";
  if (ways.size() > 1) ways.back().second = "other types";
  for (const auto& [way, types] : ways) {
    for (const LaunchStretch& stretch : way) {
      v1::LaunchStretch& told = *wire.add_launches();
      told.set_types(types);
      told.set_path(text_of(stretch.path));
      told.set_most_bytes(stretch.most_bytes);
      if (stretch.launched) told.set_algorithm(std::string(name_of(*stretch.launched)));
      if (stretch.between_nodes)
        told.set_algorithm(std::string(arcomm::text_of(*stretch.between_nodes)));
    }
  }
}

}  // namespace

void fill_status(const CommunicatorSnapshot& communicator, v1::CommunicatorStatus& wire) {
  wire.set_id(short_name(communicator.unique_id));
  wire.set_epoch(communicator.epoch);
  wire.set_ranks(static_cast<std::int32_t>(communicator.ranks.size()));
  wire.set_state(communicator.state);
  wire.set_operations_done(communicator.operations_done);
  wire.set_operations_failed(communicator.operations_failed);
  wire.set_diagnosis(communicator.diagnosis);
  if (communicator.launches) fill_launches(*communicator.launches, wire);
  wire.set_why_not_in_stream(communicator.why_not_in_stream);
  wire.set_why_no_slots(communicator.why_no_slots);
  wire.set_most_sms(communicator.most_sms);
  wire.set_why_no_codecs(communicator.why_no_codecs);
  wire.set_default_codec(to_string(communicator.default_coding));
  const bool on_gpus = communicator.launches.has_value();
  const bool spans_nodes = communicator.nodes > 1;
  const CodecPlace place =
      spans_nodes ? (on_gpus ? CodecPlace::GpusOfSeveralNodes : CodecPlace::SeveralHosts)
      : on_gpus   ? CodecPlace::Gpus
                  : CodecPlace::OneHost;
  const RanksOnNodes where{.ranks = static_cast<std::uint32_t>(communicator.ranks.size()),
                           .nodes = communicator.nodes,
                           .on_gpus = on_gpus};
  if (communicator.default_coding.any()) {
    const LaunchTable on_hosts = spans_nodes
                                     ? make_launch_table_between_hosts(where, communicator.policy)
                                     : make_launch_table_on_host(where.ranks);
    wire.set_default_codec_becomes(
        codec_words(communicator.default_coding, place, communicator.launches.value_or(on_hosts),
                    spans_nodes ? why_no_codec_pays(where, communicator.policy) : ""));
  }
  for (const RankSnapshot& rank : communicator.ranks) {
    v1::RankStatus& member = *wire.add_members();
    member.set_rank(rank.rank);
    member.set_pid(rank.pid);
    member.set_session(rank.session.bits());
    member.set_last_seq(rank.next_seq);
    member.set_waiting(rank.waiting);
    member.set_node(rank.node);
  }
}

void fill_status(const InCallExchange& in_call, v1::CommunicatorStatus& wire) {
  fill_launches(in_call.launches(), wire);
  wire.set_why_not_in_call(in_call.why_not());
  const auto ranks = static_cast<std::uint64_t>(std::max(wire.ranks(), 1));
  wire.set_operations_done(wire.operations_done() + in_call.counted().operations / ranks);
  for (v1::RankStatus& rank : *wire.mutable_members())
    rank.set_last_seq(rank.last_seq() +
                      in_call.operations_of(static_cast<std::uint32_t>(rank.rank())));
}

void fill_status(const Rendezvous::Forming& forming, std::chrono::steady_clock::time_point now,
                 v1::CommunicatorStatus& wire) {
  wire.set_id(short_name(forming.unique_id));
  wire.set_epoch(forming.epoch);
  wire.set_ranks(forming.ranks);
  wire.set_state("forming " + std::to_string(forming.called.size()) + "/" +
                 std::to_string(forming.ranks));
  wire.set_diagnosis(forming.diagnosis);
  for (const Rendezvous::Forming::Caller& caller : forming.called) {
    v1::RankStatus& member = *wire.add_members();
    member.set_rank(caller.rank);
    member.set_pid(caller.pid);
    member.set_session(caller.session.bits());
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now - caller.since);
    member.set_waiting("the other ranks since " + std::to_string(since.count()) + " ms");
  }
}

}  // namespace arcomm

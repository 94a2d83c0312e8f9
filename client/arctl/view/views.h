// What each verb shows: pure functions from the daemon's replies to text for people or JSON for
// programs. Times in JSON keep the unit in the key's name; ids are text, because JSON numbers lose
// bits past 2^53.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/arctl/view/json.h"
#include "proto/arcommd/v1/control.pb.h"

namespace arcomm::arctl {

namespace v1 = ::arcommd::v1;

std::string status_text(const v1::StatusReply& reply, bool with_settings, bool colour);
Json status_json(const v1::StatusReply& reply);
bool is_ready(const v1::StatusReply& reply);

std::string sessions_text(const v1::SessionsReply& reply, bool colour);
Json sessions_json(const v1::SessionsReply& reply);

std::string communicators_text(const v1::CommunicatorsReply& reply, bool colour);
Json communicators_json(const v1::CommunicatorsReply& reply);
// Which path operations of which types and sizes take: "float16: in-stream to 16 MiB, launched
// (stream) above; other types: resident to 128 KiB, launched above". "" on the host.
std::string launches_text(const v1::CommunicatorStatus& communicator);
Json launches_json(const v1::CommunicatorStatus& communicator);
// Keeps those whose id starts with `prefix`; false if none is left.
bool keep_communicators(v1::CommunicatorsReply& reply, std::string_view prefix);

// One sentence for a communicator that needs attention, "" for one that does not: the daemon's own
// diagnosis, or what the ranks' counts say.
std::string diagnosis_of(const v1::CommunicatorStatus& communicator);
bool is_elsewhere(const v1::RankStatus& member);  // on another node than the daemon's
// Those with the fewest operations; none when all have the same number.
std::vector<const v1::RankStatus*> lagging_ranks(const v1::CommunicatorStatus& communicator);
Json diagnosis_json(const v1::CommunicatorsReply& reply);

std::string net_text(const v1::NetReply& reply, bool colour);
Json net_json(const v1::NetReply& reply);

std::string codec_text(const v1::TraceRecord& record);  // "none" from a daemon that says none
// "sum float16 q8"; of an error class "sum float16 class:none".
std::string operation_text(const v1::TraceRecord& record);
std::string trace_text(const v1::TraceReply& reply, bool colour);
Json trace_json(const v1::TraceReply& reply);
// The same as Chrome's trace events, for a viewer.
Json trace_chrome_json(const v1::TraceReply& reply);

// The last message of a tune with `bench` set.
std::string network_bench_text(const v1::TuneReply& last, bool colour);
Json network_bench_json(const v1::TuneReply& last);

std::string reload_text(const v1::ReloadReply& reply);
Json reload_json(const v1::ReloadReply& reply);

std::string explain_text(const v1::ExplainReply& reply);
Json explain_json(const v1::ExplainReply& reply);

// Prometheus text to JSON: {"metrics": [{name, type, labels, value}]}. `prefix` keeps the metrics
// whose name starts with it.
Json metrics_json(std::string_view exposition, std::string_view prefix);
std::string metrics_text(std::string_view exposition, std::string_view prefix);

// An id as the daemon prints it in its log: index.generation.
std::string id_text(std::uint64_t bits);

}  // namespace arcomm::arctl

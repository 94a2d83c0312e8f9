#include "daemon/control/calls/status/trace_reply.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "daemon/comm/unique_id.h"

namespace arcomm {
namespace {

v1::TraceRecord to_wire(const FlightRecord& record) {
  v1::TraceRecord wire;
  UniqueIdBytes id{};
  std::memcpy(id.data(), &record.unique_id_prefix, sizeof record.unique_id_prefix);
  wire.set_number(record.number);
  wire.set_communicator(short_name(id));
  wire.set_epoch(record.epoch);
  wire.set_seq(record.seq);
  wire.set_rank(record.rank);
  wire.set_pid(record.pid);
  wire.set_dtype(std::string(text_of(record.dtype)));
  wire.set_op(std::string(text_of(record.op)));
  wire.set_collective(std::string(text_of(record.collective)));
  wire.set_codec(std::string(text_of(record.codec)));
  wire.set_of_error_class(record.codec_origin == CodecOrigin::ErrorClass);
  wire.set_send_count(record.send_count);
  wire.set_recv_count(record.recv_count);
  wire.set_code(static_cast<std::uint32_t>(record.code));
  wire.set_reason(static_cast<std::uint32_t>(record.reason));
  wire.set_culprit_rank(record.culprit);
  wire.set_submitted_ns(record.submitted_ns);
  wire.set_admitted_ns(record.admitted_ns);
  wire.set_matched_ns(record.matched_ns);
  wire.set_agreed_ns(record.agreed_ns);
  wire.set_launched_ns(record.launched_ns);
  wire.set_done_ns(record.done_ns);
  return wire;
}

void fill(const NetworkSteps& steps, v1::TraceNetwork& wire) {
  wire.set_nodes(steps.nodes);
  wire.set_posted_ns(steps.posted_ns);
  wire.set_sent_ns(steps.sent_ns);
  wire.set_arrived_ns(steps.arrived_ns);
  wire.set_credited_ns(steps.credited_ns);
  wire.set_sent_bytes(steps.sent_bytes);
  wire.set_received_bytes(steps.received_bytes);
}

}  // namespace

v1::TraceReply trace_reply(FlightLog log, const v1::TraceRequest& request, bool are_of_several,
                           const std::function<std::string(std::uint8_t)>& algorithm_name) {
  v1::TraceReply reply;
  std::vector<FlightRecord>& records = log.operations;
  // An operation in flight is open, not failed: its code is Unknown and it has no end.
  if (request.failed_only()) {
    std::erase_if(records, [](const FlightRecord& one) {
      return one.code == ErrorCode::Ok || one.done_ns == 0;
    });
  }
  if (are_of_several) {
    std::stable_sort(records.begin(), records.end(),
                     [](const auto& a, const auto& b) { return a.admitted_ns < b.admitted_ns; });
  }
  const std::size_t wanted =
      request.last() == 0 ? records.size() : std::min<std::size_t>(request.last(), records.size());
  const NetworkStepsIndex network(log.network);
  for (std::size_t i = records.size() - wanted; i < records.size(); ++i) {
    v1::TraceRecord wire = to_wire(records[i]);
    std::uint8_t algorithm = records[i].algorithm;
    if (const NetworkSteps* steps = network.find(records[i])) {
      fill(*steps, *wire.mutable_network());
      // A record of what has not ended does not say it yet.
      if (algorithm == kNoAlgorithm) algorithm = steps->algorithm;
    }
    wire.set_algorithm(algorithm_name(algorithm));
    *reply.add_records() = std::move(wire);
  }
  return reply;
}

void add_in_call(const InCallExchanges& in_call, v1::TraceReply& reply) {
  in_call.for_each([&reply](const UniqueIdBytes& unique_id, std::uint64_t epoch,
                            const InCallExchange& exchange) {
    v1::TraceInCall& wire = *reply.add_in_call();
    const InCallCounts::Sum counted = exchange.counted();
    wire.set_communicator(short_name(unique_id));
    wire.set_epoch(epoch);
    wire.set_ranks(static_cast<std::int32_t>(exchange.ranks()));
    wire.set_operations(counted.operations);
    wire.set_bytes(counted.bytes);
  });
}

}  // namespace arcomm

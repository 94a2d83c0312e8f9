#include <set>
#include <tuple>

#include "client/arctl/command_line/units.h"
#include "client/arctl/view/table.h"
#include "client/arctl/view/views.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::arctl {
namespace {

// "" when one of the two steps was not reached. The clocks of client and daemon are the same one.
std::string between_us(std::uint64_t from_ns, std::uint64_t to_ns) {
  if (from_ns == 0 || to_ns == 0 || to_ns < from_ns) return "";
  return fixed(static_cast<double>(to_ns - from_ns) / 1e3, 1);
}

std::string outcome_of(const v1::TraceRecord& record) {
  if (record.done_ns() == 0) return "in flight";
  if (record.code() == 0) return "ok";
  std::string text(name_of(error_code_from(record.code())));
  if (record.reason() != 0) text += " (" + std::string(name_of(reason_from(record.reason()))) + ")";
  if (record.culprit_rank() >= 0) text += " by rank " + std::to_string(record.culprit_rank());
  return text;
}

// Of the operations that span nodes, once for each: times in us since all ranks of this node had
// called, as they overlap.
std::string between_nodes_text(const v1::TraceReply& reply, bool colour) {
  Table table({{"COMM"},
               {"EPOCH", Align::Right},
               {"SEQ", Align::Right},
               {"OPERATION"},
               {"NODES", Align::Right},
               {"ALGORITHM"},
               {"AGREED us", Align::Right},
               {"POSTED us", Align::Right},
               {"SENT us", Align::Right},
               {"ARRIVED us", Align::Right},
               {"CREDITED us", Align::Right},
               {"OUT bytes", Align::Right},
               {"IN bytes", Align::Right}});
  std::set<std::tuple<std::string, std::uint64_t, std::uint64_t>> told;
  for (const v1::TraceRecord& record : reply.records()) {
    if (!record.has_network() ||
        !told.emplace(record.communicator(), record.epoch(), record.seq()).second)
      continue;
    const v1::TraceNetwork& network = record.network();
    const std::uint64_t matched = record.matched_ns();
    table.add({record.communicator(), std::to_string(record.epoch()), std::to_string(record.seq()),
               operation_text(record), std::to_string(network.nodes()), record.algorithm(),
               between_us(matched, record.agreed_ns()), between_us(matched, network.posted_ns()),
               between_us(matched, network.sent_ns()), between_us(matched, network.arrived_ns()),
               between_us(matched, network.credited_ns()), std::to_string(network.sent_bytes()),
               std::to_string(network.received_bytes())});
  }
  if (table.empty()) return "";
  return "\nBetween nodes, in us since all ranks of this node had called:\n" + table.text(colour);
}

std::string in_call_text(const v1::TraceReply& reply, bool colour) {
  Table table({{"COMM"},
               {"EPOCH", Align::Right},
               {"RANKS", Align::Right},
               {"OPERATIONS", Align::Right},
               {"BYTES", Align::Right}});
  for (const v1::TraceInCall& one : reply.in_call()) {
    if (one.operations() == 0) continue;
    table.add({one.communicator(), std::to_string(one.epoch()), std::to_string(one.ranks()),
               std::to_string(one.operations()), human_bytes(one.bytes())});
  }
  if (table.empty()) return "";
  return "\nWithin the ranks' calls, counted and not recorded one by one:\n" + table.text(colour);
}

Json network_json(const v1::TraceRecord& record) {
  if (!record.has_network()) return nullptr;
  const v1::TraceNetwork& network = record.network();
  return {{"nodes", network.nodes()},
          {"posted_ns", network.posted_ns()},
          {"sent_ns", network.sent_ns()},
          {"arrived_ns", network.arrived_ns()},
          {"credited_ns", network.credited_ns()},
          {"sent_bytes", network.sent_bytes()},
          {"received_bytes", network.received_bytes()}};
}

}  // namespace

std::string codec_text(const v1::TraceRecord& record) {
  return record.codec().empty() ? std::string(text_of(Codec::None)) : record.codec();
}

std::string operation_text(const v1::TraceRecord& record) {
  const std::string codec = codec_text(record);
  const std::string asked = record.op() + " " + record.dtype();
  // That none came of an error class is worth a word, too.
  if (record.of_error_class()) return asked + " class:" + codec;
  return asked + (codec == text_of(Codec::None) ? "" : " " + codec);
}

std::string trace_text(const v1::TraceReply& reply, bool colour) {
  std::string out;
  if (reply.records_size() == 0) {
    out = "no operation is recorded\n";
  } else {
    // Times in us from one step to the next: in the ring, for the other ranks, for the executor, in
    // the kernel.
    Table table({{"#", Align::Right},
                 {"COMM"},
                 {"EPOCH", Align::Right},
                 {"SEQ", Align::Right},
                 {"RANK", Align::Right},
                 {"PID", Align::Right},
                 {"OPERATION"},
                 {"COUNT", Align::Right},
                 {"ALGORITHM"},
                 {"RING us", Align::Right},
                 {"MATCH us", Align::Right},
                 {"START us", Align::Right},
                 {"RUN us", Align::Right},
                 {"TOTAL us", Align::Right},
                 {"RESULT"}});
    for (const v1::TraceRecord& record : reply.records()) {
      const std::string outcome = outcome_of(record);
      table.add({std::to_string(record.number()),
                 record.communicator(),
                 std::to_string(record.epoch()),
                 std::to_string(record.seq()),
                 std::to_string(record.rank()),
                 record.pid() == 0 ? "?" : std::to_string(record.pid()),
                 operation_text(record),
                 std::to_string(record.send_count()),
                 record.algorithm(),
                 between_us(record.submitted_ns(), record.admitted_ns()),
                 between_us(record.admitted_ns(), record.matched_ns()),
                 between_us(record.matched_ns(), record.launched_ns()),
                 between_us(record.launched_ns(), record.done_ns()),
                 between_us(record.submitted_ns(), record.done_ns()),
                 {outcome, outcome == "ok"          ? Colour::Green
                           : outcome == "in flight" ? Colour::Yellow
                                                    : Colour::Red}});
    }
    out = table.text(colour);
  }
  out += between_nodes_text(reply, colour);
  out += in_call_text(reply, colour);
  if (reply.lost() != 0) out += std::to_string(reply.lost()) + " older records were overwritten\n";
  return out;
}

Json trace_json(const v1::TraceReply& reply) {
  Json records = Json::array();
  for (const v1::TraceRecord& record : reply.records()) {
    records.push_back({{"number", record.number()},
                       {"communicator", record.communicator()},
                       {"epoch", record.epoch()},
                       {"seq", record.seq()},
                       {"rank", record.rank()},
                       {"pid", record.pid()},
                       {"collective", record.collective()},
                       {"dtype", record.dtype()},
                       {"op", record.op()},
                       {"codec", codec_text(record)},
                       {"of_error_class", record.of_error_class()},
                       {"send_count", record.send_count()},
                       {"recv_count", record.recv_count()},
                       {"algorithm", record.algorithm()},
                       {"code", name_of(error_code_from(record.code()))},
                       {"reason", name_of(reason_from(record.reason()))},
                       {"culprit_rank", record.culprit_rank()},
                       {"finished", record.done_ns() != 0},
                       {"submitted_ns", record.submitted_ns()},
                       {"admitted_ns", record.admitted_ns()},
                       {"matched_ns", record.matched_ns()},
                       {"agreed_ns", record.agreed_ns()},
                       {"launched_ns", record.launched_ns()},
                       {"done_ns", record.done_ns()},
                       {"network", network_json(record)}});
  }
  Json in_call = Json::array();
  for (const v1::TraceInCall& one : reply.in_call()) {
    in_call.push_back({{"communicator", one.communicator()},
                       {"epoch", one.epoch()},
                       {"ranks", one.ranks()},
                       {"operations", one.operations()},
                       {"bytes", one.bytes()}});
  }
  return {{"lost", reply.lost()}, {"records", std::move(records)}, {"in_call", std::move(in_call)}};
}

std::string reload_text(const v1::ReloadReply& reply) {
  std::string out =
      "configuration read again, generation " + std::to_string(reply.config_generation()) + "\n";
  if (reply.changed_size() == 0 && reply.needs_restart_size() == 0) out += "  nothing changed\n";
  for (const std::string& name : reply.changed()) out += "  in force: " + printable(name) + "\n";
  for (const std::string& name : reply.needs_restart()) {
    out += "  changed in the file, in force after a restart: " + printable(name) + "\n";
  }
  return out;
}

Json reload_json(const v1::ReloadReply& reply) {
  Json changed = Json::array(), needs_restart = Json::array();
  for (const std::string& name : reply.changed()) changed.push_back(name);
  for (const std::string& name : reply.needs_restart()) needs_restart.push_back(name);
  return {{"config_generation", reply.config_generation()},
          {"changed", std::move(changed)},
          {"needs_restart", std::move(needs_restart)}};
}

std::string explain_text(const v1::ExplainReply& reply) {
  std::string out = reply.text();
  if (!out.ends_with('\n')) out += '\n';
  return out;
}

Json explain_json(const v1::ExplainReply& reply) {
  return {{"text", reply.text()},
          {"chosen", reply.chosen()},
          {"runner_up", reply.runner_up()},
          {"chosen_us", json_number(reply.chosen_microseconds())},
          {"runner_up_us", json_number(reply.runner_up_microseconds())},
          {"table", reply.table()},
          {"codec", reply.codec().empty() ? std::string(text_of(Codec::None)) : reply.codec()},
          {"codec_why", reply.codec_why()}};
}

}  // namespace arcomm::arctl

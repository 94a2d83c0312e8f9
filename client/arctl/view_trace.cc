#include "client/arctl/table.h"
#include "client/arctl/units.h"
#include "client/arctl/views.h"
#include "proto/status.h"

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

}  // namespace

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
                 record.op() + " " + record.dtype(),
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
  if (reply.lost() != 0) out += std::to_string(reply.lost()) + " older records were overwritten\n";
  return out;
}

void trace_json(Json& json, const v1::TraceReply& reply) {
  json.begin_object().field("lost", reply.lost()).key("records").begin_array();
  for (const v1::TraceRecord& record : reply.records()) {
    json.begin_object()
        .field("number", record.number())
        .field("communicator", record.communicator())
        .field("epoch", record.epoch())
        .field("seq", record.seq())
        .field("rank", record.rank())
        .field("pid", record.pid())
        .field("collective", record.collective())
        .field("dtype", record.dtype())
        .field("op", record.op())
        .field("send_count", record.send_count())
        .field("recv_count", record.recv_count())
        .field("algorithm", record.algorithm())
        .field("code", name_of(error_code_from(record.code())))
        .field("reason", name_of(reason_from(record.reason())))
        .field("culprit_rank", record.culprit_rank())
        .field("finished", record.done_ns() != 0)
        .field("submitted_ns", record.submitted_ns())
        .field("admitted_ns", record.admitted_ns())
        .field("matched_ns", record.matched_ns())
        .field("launched_ns", record.launched_ns())
        .field("done_ns", record.done_ns())
        .end_object();
  }
  json.end_array().end_object();
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

void reload_json(Json& json, const v1::ReloadReply& reply) {
  json.begin_object()
      .field("config_generation", reply.config_generation())
      .key("changed")
      .begin_array();
  for (const std::string& name : reply.changed()) json.value(name);
  json.end_array().key("needs_restart").begin_array();
  for (const std::string& name : reply.needs_restart()) json.value(name);
  json.end_array().end_object();
}

std::string explain_text(const v1::ExplainReply& reply) {
  std::string out = reply.text();
  if (!out.ends_with('\n')) out += '\n';
  return out;
}

void explain_json(Json& json, const v1::ExplainReply& reply) {
  json.begin_object()
      .field("text", reply.text())
      .field("chosen", reply.chosen())
      .field("runner_up", reply.runner_up())
      .field("chosen_us", reply.chosen_microseconds())
      .field("runner_up_us", reply.runner_up_microseconds())
      .field("table", reply.table())
      .end_object();
}

}  // namespace arcomm::arctl

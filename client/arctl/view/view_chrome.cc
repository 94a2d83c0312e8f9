// The flight recorder as Chrome's trace events, which Perfetto and chrome://tracing open: a process
// for each communicator and epoch, a thread for each rank, a slice for each step.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string_view>
#include <vector>

#include "client/arctl/bench/bench_case.h"
#include "client/arctl/view/table.h"
#include "client/arctl/view/views.h"
#include "proto/status.h"

namespace arcomm::arctl {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

// A step lasts from its timestamp to the next one that the operation reached.
struct Step {
  std::string_view name;  // what the operation waits for or does, as in the table's titles
  std::uint64_t (v1::TraceRecord::*began_ns)() const;
};
constexpr std::array<Step, 4> kSteps = {{{"ring", &v1::TraceRecord::submitted_ns},
                                         {"match", &v1::TraceRecord::admitted_ns},
                                         {"start", &v1::TraceRecord::matched_ns},
                                         {"run", &v1::TraceRecord::launched_ns}}};

// The first timestamp there is, in the order of the steps; kNever where there is none.
std::uint64_t begin_of(const v1::TraceRecord& record) {
  for (const Step& step : kSteps) {
    if ((record.*step.began_ns)() != 0) return (record.*step.began_ns)();
  }
  return kNever;
}

std::uint64_t end_of(const v1::TraceRecord& record) {
  return record.done_ns() == 0 ? kNever : record.done_ns();
}

// The format counts microseconds; a double holds nanoseconds of three months since the start.
Json microseconds(std::uint64_t ns) {
  return json_number(static_cast<double>(ns) / 1e3);
}

Json named(std::string_view what, std::size_t pid, std::size_t tid, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}};
}

Json arguments_of(const v1::TraceRecord& record) {
  const std::optional<DType> dtype = parse_dtype(record.dtype());
  Json arguments = {{"seq", record.seq()},
                    {"operation", record.op() + " " + record.dtype()},
                    {"collective", record.collective()},
                    {"send_count", record.send_count()},
                    {"recv_count", record.recv_count()},
                    {"bytes", dtype ? Json(record.send_count() * size_of(*dtype)) : Json(nullptr)},
                    {"algorithm", record.algorithm()},
                    {"code", name_of(error_code_from(record.code()))},
                    {"reason", name_of(reason_from(record.reason()))},
                    {"culprit", record.culprit_rank()},
                    {"record", record.number()}};
  if (record.done_ns() == 0) arguments["code"] = "in flight";
  return arguments;
}

void append_steps(const v1::TraceRecord& record, std::size_t pid, std::size_t tid,
                  std::vector<Json>& slices) {
  const Json arguments = arguments_of(record);
  for (std::size_t i = 0; i < kSteps.size(); ++i) {
    const std::uint64_t began = (record.*kSteps[i].began_ns)();
    if (began == 0) continue;
    std::uint64_t ended = 0;
    for (std::size_t next = i + 1; next < kSteps.size() && ended == 0; ++next)
      ended = (record.*kSteps[next].began_ns)();
    if (ended == 0) ended = record.done_ns();
    // Open: begun and not ended.
    Json slice = {{"name", kSteps[i].name},
                  {"cat", record.op() + " " + record.dtype()},
                  {"ph", ended == 0 ? "B" : "X"},
                  {"pid", pid},
                  {"tid", tid},
                  {"ts", microseconds(began)}};
    if (ended != 0) slice["dur"] = microseconds(ended > began ? ended - began : 0);
    slice["args"] = arguments;
    slices.push_back(std::move(slice));
  }
}

}  // namespace

Json trace_chrome_json(const v1::TraceReply& reply) {
  std::map<std::pair<std::string, std::uint64_t>, std::vector<const v1::TraceRecord*>> groups;
  for (const v1::TraceRecord& record : reply.records())
    groups[{record.communicator(), record.epoch()}].push_back(&record);
  std::vector<Json> events, slices;
  std::size_t pid = 0;
  for (auto& [group, records] : groups) {
    ++pid;
    events.push_back(named(
        "process_name", pid, 0,
        "communicator " + printable(group.first) + ", epoch " + std::to_string(group.second)));
    std::stable_sort(records.begin(), records.end(), [](const auto* a, const auto* b) {
      return std::pair(a->rank(), begin_of(*a)) < std::pair(b->rank(), begin_of(*b));
    });
    // A viewer wants slices of one thread nested. A rank may have several operations in flight:
    // each goes to the first of its rank's threads that is free by then.
    std::vector<std::uint64_t> free_from;
    std::size_t first_tid = 1;
    std::int32_t rank = -1;
    for (const v1::TraceRecord* record : records) {
      if (record->rank() != rank) {
        rank = record->rank();
        first_tid += free_from.size();
        free_from.clear();
      }
      const std::uint64_t begin = begin_of(*record);
      if (begin == kNever) continue;
      const auto free = std::find_if(free_from.begin(), free_from.end(),
                                     [begin](std::uint64_t from) { return from <= begin; });
      const auto lane = static_cast<std::size_t>(free - free_from.begin());
      if (free == free_from.end()) {
        std::string name = "rank " + std::to_string(rank);
        name += lane == 0 ? " (pid " + std::to_string(record->pid()) + ")"
                          : ", " + std::to_string(lane + 1) + " in flight";
        events.push_back(named("thread_name", pid, first_tid + lane, name));
        free_from.push_back(0);
      }
      free_from[lane] = std::max(begin, end_of(*record));
      append_steps(*record, pid, first_tid + lane, slices);
    }
  }
  std::stable_sort(slices.begin(), slices.end(), [](const Json& a, const Json& b) {
    return a["ts"].get<double>() < b["ts"].get<double>();
  });
  events.insert(events.end(), std::make_move_iterator(slices.begin()),
                std::make_move_iterator(slices.end()));
  return {{"displayTimeUnit", "ns"},
          {"otherData", {{"clock", "CLOCK_MONOTONIC"}, {"lost", reply.lost()}}},
          {"traceEvents", std::move(events)}};
}

}  // namespace arcomm::arctl

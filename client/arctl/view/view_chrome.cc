// The flight recorder as Chrome's trace events, which Perfetto and chrome://tracing open: a process
// for each communicator and epoch, a thread for each rank, a slice for each step; and two threads
// for what goes between nodes, once for each operation, out and in.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
// Of one that spans nodes, which agree on it in between.
constexpr std::array<Step, 5> kStepsBetweenNodes = {{{"ring", &v1::TraceRecord::submitted_ns},
                                                     {"match", &v1::TraceRecord::admitted_ns},
                                                     {"agree", &v1::TraceRecord::matched_ns},
                                                     {"start", &v1::TraceRecord::agreed_ns},
                                                     {"run", &v1::TraceRecord::launched_ns}}};
std::span<const Step> steps_of(const v1::TraceRecord& record) {
  if (record.agreed_ns() == 0 && !record.has_network()) return kSteps;
  return kStepsBetweenNodes;
}

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
                    {"operation", operation_text(record)},
                    {"collective", record.collective()},
                    {"codec", codec_text(record)},
                    {"of_error_class", record.of_error_class()},
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

// A slice from `began` to `ended`; open where that is 0.
Json slice_of(std::string_view name, const v1::TraceRecord& record, const Json& arguments,
              std::uint64_t began, std::uint64_t ended) {
  Json slice = {{"name", name},
                {"cat", operation_text(record)},
                {"ph", ended == 0 ? "B" : "X"},
                {"ts", microseconds(began)},
                {"args", arguments}};
  if (ended != 0) slice["dur"] = microseconds(ended > began ? ended - began : 0);
  return slice;
}

std::vector<Json> slices_of(const v1::TraceRecord& record) {
  std::vector<Json> slices;
  const Json arguments = arguments_of(record);
  const std::span<const Step> steps = steps_of(record);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::uint64_t began = (record.*steps[i].began_ns)();
    if (began == 0) continue;
    std::uint64_t ended = 0;
    for (std::size_t next = i + 1; next < steps.size() && ended == 0; ++next)
      ended = (record.*steps[next].began_ns)();
    if (ended == 0) ended = record.done_ns();
    slices.push_back(slice_of(steps[i].name, record, arguments, began, ended));
  }
  return slices;
}

// What one operation sends to other nodes: from its first payload to the last that has left.
struct Outwards {
  static constexpr std::string_view kTrack = "to other nodes";
  static std::uint64_t began(const v1::TraceRecord& record) { return record.network().posted_ns(); }
  static std::uint64_t ended(const v1::TraceRecord& record) {
    // Not seen to leave: it went with the offer, or nothing came of it.
    const v1::TraceNetwork& network = record.network();
    if (network.sent_ns() != 0) return network.sent_ns();
    return record.done_ns() == 0 ? 0 : network.posted_ns();
  }
  static Json slice(const v1::TraceRecord& record) {
    Json arguments = arguments_of(record);
    arguments["nodes"] = record.network().nodes();
    arguments["sent_bytes"] = record.network().sent_bytes();
    return slice_of("send", record, arguments, began(record), ended(record));
  }
};

// What it waits for from them: since the nodes agreed on it, until the last chunk was there.
struct Inwards {
  static constexpr std::string_view kTrack = "from other nodes";
  static std::uint64_t began(const v1::TraceRecord& record) {
    return record.agreed_ns() != 0 ? record.agreed_ns() : record.matched_ns();
  }
  static std::uint64_t ended(const v1::TraceRecord& record) {
    const std::uint64_t arrived = record.network().arrived_ns();
    return arrived != 0 ? arrived : record.done_ns();
  }
  static Json slice(const v1::TraceRecord& record) {
    Json arguments = arguments_of(record);
    arguments["nodes"] = record.network().nodes();
    arguments["received_bytes"] = record.network().received_bytes();
    // When a peer was last told that its slots are free; null where none was.
    const std::uint64_t credited = record.network().credited_ns();
    arguments["credited_us"] = credited == 0 ? Json(nullptr) : microseconds(credited);
    return slice_of("receive", record, arguments, began(record), ended(record));
  }
};

// The threads of one process. A viewer wants slices of one thread nested, and several operations
// may be in flight: each goes to the first of the group's threads that is free by then.
class Tracks {
 public:
  Tracks(std::size_t pid, std::vector<Json>& events, std::vector<Json>& slices)
      : pid_(pid), events_(events), slices_(slices) {}

  // Of a rank, or of one way between nodes.
  void begin_group() {
    first_tid_ += free_from_.size();
    free_from_.clear();
  }
  // first: the name of the group's first thread; others: how further ones begin. Slices of a group
  // come in the order in which they begin.
  void add(const std::string& first, const std::string& others, std::uint64_t began,
           std::uint64_t ended, std::vector<Json> slices) {
    const auto free =
        std::ranges::find_if(free_from_, [began](std::uint64_t from) { return from <= began; });
    const auto lane = static_cast<std::size_t>(free - free_from_.begin());
    const std::size_t tid = first_tid_ + lane;
    if (free == free_from_.end()) {
      events_.push_back(
          named("thread_name", pid_, tid,
                lane == 0 ? first : others + ", " + std::to_string(lane + 1) + " in flight"));
      free_from_.push_back(0);
    }
    free_from_[lane] = std::max(began, ended);
    for (Json& slice : slices) {
      slice["pid"] = pid_;
      slice["tid"] = tid;
      slices_.push_back(std::move(slice));
    }
  }

 private:
  const std::size_t pid_;
  std::vector<Json>& events_;
  std::vector<Json>& slices_;
  std::vector<std::uint64_t> free_from_;
  std::size_t first_tid_ = 1;
};

using Records = std::vector<const v1::TraceRecord*>;

void add_ranks(Records records, Tracks& tracks) {
  std::ranges::stable_sort(records, [](const auto* a, const auto* b) {
    return std::pair(a->rank(), begin_of(*a)) < std::pair(b->rank(), begin_of(*b));
  });
  std::int32_t rank = -1;
  for (const v1::TraceRecord* record : records) {
    if (record->rank() != rank) {
      rank = record->rank();
      tracks.begin_group();
    }
    if (begin_of(*record) == kNever) continue;
    const std::string name = "rank " + std::to_string(rank);
    tracks.add(name + " (pid " + std::to_string(record->pid()) + ")", name, begin_of(*record),
               end_of(*record), slices_of(*record));
  }
}

// Each operation once, whatever the number of its ranks here.
template <typename Way>
void add_between_nodes(const Records& records, Tracks& tracks) {
  std::map<std::uint64_t, const v1::TraceRecord*> by_seq;
  for (const v1::TraceRecord* record : records) {
    if (record->has_network() && Way::began(*record) != 0) by_seq.emplace(record->seq(), record);
  }
  Records operations;
  for (const auto& [seq, record] : by_seq) operations.push_back(record);
  std::ranges::stable_sort(operations, {}, [](const auto* one) { return Way::began(*one); });
  tracks.begin_group();
  const std::string name(Way::kTrack);
  for (const v1::TraceRecord* record : operations) {
    const std::uint64_t ended = Way::ended(*record);
    tracks.add(name, name, Way::began(*record), ended == 0 ? kNever : ended, {Way::slice(*record)});
  }
}

}  // namespace

Json trace_chrome_json(const v1::TraceReply& reply) {
  std::map<std::pair<std::string, std::uint64_t>, Records> groups;
  for (const v1::TraceRecord& record : reply.records())
    groups[{record.communicator(), record.epoch()}].push_back(&record);
  std::vector<Json> events, slices;
  std::size_t pid = 0;
  for (const auto& [group, records] : groups) {
    ++pid;
    events.push_back(named(
        "process_name", pid, 0,
        "communicator " + printable(group.first) + ", epoch " + std::to_string(group.second)));
    Tracks tracks(pid, events, slices);
    add_ranks(records, tracks);
    add_between_nodes<Outwards>(records, tracks);
    add_between_nodes<Inwards>(records, tracks);
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

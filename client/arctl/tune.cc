#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "client/arctl/bench/bench_case.h"
#include "client/arctl/bench/in_call.h"
#include "client/arctl/command_line/units.h"
#include "client/arctl/verbs.h"
#include "client/arctl/view/table.h"
#include "client/arctl/view/views.h"
#include "proto/host/in_call.h"

namespace arcomm::arctl {
namespace {

struct TuneOptions {
  std::string explain;  // a size, or "": measure
  int ranks = 0;
  std::uint32_t nodes = 0;
  std::string dtype = "float32";
  std::string device;  // "": the daemon's first
  std::string codec = "none";
  double least_snr_db = 0, most_relative_error = 0;
  std::string max_bytes;
  double budget_s = 0;
  bool dry_run = false;
  bool network = false;
  std::vector<std::string> peers;  // of the network; none: all
};

constexpr std::uint64_t kHostBudgetMs = 20'000;  // where none is said, as the daemon itself takes

std::string speed_text(std::uint64_t bytes_per_second) {
  return bytes_per_second == 0 ? "-" : human_bytes(bytes_per_second) + "/s";
}

std::string links_text(const v1::TuneReply& last, bool colour) {
  Table table({{"PEER"},
               {"NODE"},
               {"LATENCY", Align::Right},
               {"EACH WAY", Align::Right},
               {"COPYING", Align::Right},
               {"WITHOUT", Align::Right},
               {""}});
  for (const v1::TuneLink& link : last.links()) {
    if (!link.why().empty()) {
      table.add({printable(link.address()),
                 printable(link.name()),
                 "-",
                 "-",
                 "-",
                 "-",
                 {printable(link.why()), Colour::Red}});
      continue;
    }
    table.add({printable(link.address()),
               printable(link.name()),
               human_us(link.latency_us()),
               speed_text(link.bytes_per_second()),
               speed_text(link.with_copies()),
               speed_text(link.without_copies()),
               {link.carried_bytes() == 0
                    ? ""
                    : "its workers sent " + human_bytes(link.carried_bytes()) + " meanwhile",
                Colour::Yellow}});
  }
  return table.text(colour);
}

// On stderr, so that stdout stays the table; only where somebody can see it move.
void draw_progress(double progress, const v1::TunePoint& point) {
  constexpr int kWidth = 30;
  const int full = static_cast<int>(std::lround(std::clamp(progress, 0.0, 1.0) * kWidth));
  const std::string bar = std::string(static_cast<std::size_t>(full), '#') +
                          std::string(static_cast<std::size_t>(kWidth - full), '.');
  std::fprintf(stderr, "\r[%s] %3.0f %%  %9s  %d ranks  %-16s", bar.c_str(), progress * 100,
               human_bytes(point.bytes()).c_str(), point.ranks(),
               printable(point.algorithm()).c_str());
  std::fflush(stderr);
}

std::string points_text(const v1::TuneReply& last, bool colour) {
  Table table({{"SIZE", Align::Right},
               {"RANKS", Align::Right},
               {"TYPES"},
               {"ALGORITHM"},
               {"TIME", Align::Right},
               {""}});
  for (const v1::TunePoint& point : last.points()) {
    table.add({human_bytes(point.bytes()),
               std::to_string(point.ranks()),
               point.type_class().empty() ? "all" : point.type_class(),
               point.algorithm(),
               human_us(point.microseconds()),
               {point.chosen() ? "chosen" : "", Colour::Green}});
  }
  return table.text(colour);
}

std::string outcome_json(const v1::TuneReply& last, bool dry_run) {
  Json measured = Json::array();
  for (const v1::TunePoint& point : last.points()) {
    measured.push_back({{"bytes", point.bytes()},
                        {"ranks", point.ranks()},
                        {"class", point.type_class()},
                        {"algorithm", point.algorithm()},
                        {"us", json_number(point.microseconds())},
                        {"chosen", point.chosen()}});
  }
  Json links = Json::array();
  for (const v1::TuneLink& link : last.links()) {
    links.push_back({{"address", link.address()},
                     {"name", link.name()},
                     {"why", link.why()},
                     {"latency_us", json_number(link.latency_us())},
                     {"bytes_per_second", link.bytes_per_second()},
                     {"with_copies", link.with_copies()},
                     {"without_copies", link.without_copies()},
                     {"carried_bytes", link.carried_bytes()}});
  }
  return json_line({{"dry_run", dry_run},
                    {"links", std::move(links)},
                    {"saved_as", last.saved_as()},
                    {"table", last.table()},
                    {"points", std::move(measured)}});
}

// What the daemon makes of no device, too.
bool is_of_host(Admin& admin, const TuneOptions& options) {
  if (!options.device.empty()) return options.device == "host";
  const Result<v1::StatusReply> status = admin.status();
  return status && std::ranges::none_of(status->workers(), [](const auto& worker) {
           return worker.device() != "host:0";
         });
}

// What only ranks can measure, which the daemon saves with what it measures itself, in half of the
// time. That there is none is no reason to measure nothing.
Status add_in_call(const Invocation& invocation, Admin& admin, bool draw,
                   v1::TuneRequest& request) {
  if (request.max_bytes() != 0 && request.max_bytes() < kMaxInCallBytes) return {};
  const std::uint64_t budget_ms = request.budget_ms() == 0 ? kHostBudgetMs : request.budget_ms();
  const auto start = std::chrono::steady_clock::now();
  const auto seen = [&](const v1::TuneInCall& one) {
    v1::TunePoint point;
    point.set_bytes(one.bytes());
    point.set_ranks(one.ranks());
    point.set_algorithm("in_call");
    if (draw) draw_progress(0, point);
  };
  std::vector<v1::TuneInCall> found;
  const Status measured = measure_in_call(admin,
                                          {.runtime_dir = invocation.runtime_dir,
                                           .budget = std::chrono::milliseconds(budget_ms / 2),
                                           .timeout = invocation.timeout_or(30),
                                           .seen = seen},
                                          found);
  if (!measured) {
    if (measured.error().code == ErrorCode::DataLoss) return measured.error();
    std::fprintf(stderr, "arctl tune: not all was measured within ranks' calls: %s\n",
                 printable(measured.error().to_string()).c_str());
  }
  for (v1::TuneInCall& point : found) *request.add_in_call() = std::move(point);
  const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - start);
  const auto spent_ms = static_cast<std::uint64_t>(spent.count());
  request.set_budget_ms(std::max<std::uint64_t>(budget_ms - std::min(spent_ms, budget_ms), 1));
  return {};
}

ExitCode measure(const Invocation& invocation, const TuneOptions& options) {
  v1::TuneRequest request;
  if (!options.max_bytes.empty()) {
    const auto bytes = parse_bytes(options.max_bytes);
    if (!bytes) {
      std::fprintf(stderr, "arctl tune: --max-size wants a size such as 64M, got %s\n",
                   options.max_bytes.c_str());
      return ExitCode::Usage;
    }
    request.set_max_bytes(*bytes);
  }
  request.set_budget_ms(static_cast<std::uint64_t>(options.budget_s * 1000));
  request.set_dry_run(options.dry_run);
  request.set_device(options.device);
  request.set_network(options.network);
  for (const std::string& peer : options.peers) request.add_peers(peer);
  Result<Admin> admin = invocation.connect();
  if (!admin) return report(admin.error());
  v1::TuneReply last;
  const bool draw = ::isatty(STDERR_FILENO) == 1;
  if (!options.network && is_of_host(*admin, options)) {
    if (Status added = add_in_call(invocation, *admin, draw, request); !added)
      return report(added.error());
  }
  const Status tuned =
      admin->tune(request, invocation.timeout_or(std::max(600.0, options.budget_s + 60)),
                  [&](const v1::TuneReply& reply) {
                    if (draw && !options.network) draw_progress(reply.progress(), reply.point());
                    last = reply;
                  });
  if (draw) std::fputs("\r\x1b[K", stderr);
  if (!tuned) return report(tuned.error());
  if (!last.finished()) {
    return report(error(ErrorCode::Unavailable, Reason::DaemonLost,
                        "the daemon ended the measurement before it was finished: see its log"));
  }
  if (invocation.json) return print(outcome_json(last, options.dry_run));
  std::string text =
      options.network ? links_text(last, invocation.colour) : points_text(last, invocation.colour);
  text += options.dry_run ? "\nnothing was saved (--dry-run)\n"
          : last.saved_as().empty()
              ? "\nin force until the daemon ends; it could not be saved\n"
              : "\nsaved as " + printable(last.saved_as()) + " and in force\n";
  return print(text);
}

ExitCode explain(const Invocation& invocation, const TuneOptions& options) {
  const auto bytes = parse_bytes(options.explain);
  const auto dtype = parse_dtype(options.dtype);
  const auto codec = parse_codec(options.codec);
  if (!bytes || !dtype || !codec) {
    std::fprintf(stderr,
                 "arctl tune: --explain wants a size such as 64K, a known --dtype and a known "
                 "--codec, got %s, %s and %s\n",
                 options.explain.c_str(), options.dtype.c_str(), options.codec.c_str());
    return ExitCode::Usage;
  }
  return show(invocation, [&](Admin& admin) -> Result<Frame> {
    v1::ExplainRequest request;
    request.set_bytes(*bytes);
    request.set_ranks(options.ranks);
    request.set_dtype(static_cast<std::uint32_t>(*dtype));
    request.set_device(options.device);
    request.set_nodes(options.nodes);
    request.set_codec(static_cast<std::uint32_t>(*codec));
    request.set_least_snr_db(options.least_snr_db);
    request.set_most_relative_error(options.most_relative_error);
    Result<v1::ExplainReply> reply = admin.explain(request);
    if (!reply) return std::move(reply).error();
    if (!invocation.json) return Frame{explain_text(*reply)};
    return Frame{json_line(explain_json(*reply))};
  });
}

}  // namespace

void add_tune(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand(
      "tune",
      "Measures the algorithms on this machine, saves the crossovers and uses them for "
      "communicators to come");
  auto options = std::make_shared<TuneOptions>();
  CLI::Option* explain_size =
      verb->add_option("--explain", options->explain,
                       "Measure nothing: say which algorithm an AllReduce of SIZE gets, and why")
          ->type_name("SIZE");
  verb->add_option("--ranks", options->ranks,
                   "With --explain: between how many ranks; by default 2")
      ->check(CLI::Range(1, 64))
      ->needs(explain_size);
  verb->add_option("--nodes", options->nodes,
                   "With --explain: which way it takes between so many nodes; --ranks then counts "
                   "those of all, by default one on each")
      ->check(CLI::Range(2, 4096))
      ->needs(explain_size);
  verb->add_option("--dtype", options->dtype, "With --explain: of which type; by default float32")
      ->needs(explain_size);
  verb->add_option("--codec", options->codec,
                   "With --explain: of one that asks for this codec; by default none")
      ->needs(explain_size);
  verb->add_option("--least-snr", options->least_snr_db,
                   "With --explain: of one that asks for so many dB of signal over noise")
      ->type_name("DB")
      ->check(CLI::PositiveNumber)
      ->needs(explain_size);
  verb->add_option("--most-error", options->most_relative_error,
                   "With --explain: of one whose elements may be off by this part of their block's "
                   "largest")
      ->type_name("PART")
      ->check(CLI::PositiveNumber)
      ->needs(explain_size);
  verb->add_option("--device", options->device,
                   "What is measured or explained: gpu or host; by default GPUs where the daemon "
                   "serves any")
      ->check(CLI::IsMember({"gpu", "host"}));
  verb->add_option("--max-size", options->max_bytes,
                   "Measure up to this size; by default 64M, or 1G on GPUs")
      ->type_name("SIZE")
      ->excludes(explain_size);
  verb->add_option("--budget", options->budget_s,
                   "Seconds to spend measuring; by default 20, or 90 on GPUs")
      ->check(CLI::Range(0.0, 3600.0))
      ->excludes(explain_size);
  CLI::Option* network =
      verb->add_flag("--network", options->network,
                     "Measure the ways to the other daemons instead: latency and throughput of "
                     "links of their own, by which communicators between nodes then choose")
          ->excludes(explain_size);
  verb->add_option("--peer", options->peers,
                   "With --network: only the way to this address of net.peers; may be repeated")
      ->type_name("ADDRESS")
      ->needs(network);
  verb->add_flag("--dry-run", options->dry_run, "Measure and print, but neither save nor use it")
      ->excludes(explain_size);
  add_examples(*verb,
               {"arctl tune --dry-run", "arctl tune --explain 64K --ranks 4 --dtype bfloat16",
                "arctl tune --explain 16M --least-snr 30", "arctl tune --explain 16M --nodes 4",
                "arctl tune --network"});
  verb->callback([&invocation, options] {
    invocation.action = [&invocation, options] {
      return options->explain.empty() ? measure(invocation, *options)
                                      : explain(invocation, *options);
    };
  });
}

}  // namespace arcomm::arctl

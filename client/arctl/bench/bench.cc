#include "client/arctl/gpu/bench.h"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <vector>

#include "client/arctl/bench/accuracy/accuracy.h"
#include "client/arctl/bench/bench_case.h"
#include "client/arctl/bench/bench_options.h"
#include "client/arctl/bench/network.h"
#include "client/arctl/bench/rank_team.h"
#include "client/arctl/verbs.h"
#include "client/arctl/view/table.h"
#include "client/arctl/view/views.h"

namespace arcomm::arctl {
namespace {

struct Row {
  BenchCase what;
  Measured measured;
};

// Columns of a fixed width, because rows are printed as they are measured.
std::string heading(bool colour) {
  return painted(
             "       size        count      type  redop    place      time us       p99 us    "
             "algbw    busbw   #wrong",
             Colour::Bold, colour) +
         "\n" +
         painted(
             "        (B)   (elements)                                                  (GB/s)   "
             "(GB/s)         ",
             Colour::Dim, colour) +
         "\n";
}

std::string line_of(const Row& row, int ranks, bool colour) {
  const double us = row.measured.percentile_us(0.5);
  const Bandwidth width = bandwidth(row.what.bytes(), us, ranks);
  std::array<char, 256> text;
  std::snprintf(text.data(), text.size(),
                "%11" PRIu64 " %12" PRIu64 " %9s %6s %8s %12.2f %12.2f %8.2f %8.2f ",
                row.what.bytes(), row.what.count, text_of(row.what.dtype).data(),
                text_of(row.what.op).data(), row.what.in_place ? "in" : "out", us,
                row.measured.percentile_us(0.99), width.algorithm_gb_s, width.bus_gb_s);
  std::array<char, 32> wrong;
  std::snprintf(wrong.data(), wrong.size(), "%8" PRIu64, row.measured.wrong);
  return text.data() +
         painted(wrong.data(), row.measured.wrong != 0 ? Colour::Red : Colour::Plain, colour) +
         "\n";
}

std::string rows_json(const std::vector<Row>& rows, const BenchPlan& plan,
                      const BenchOptions& options) {
  Json all = Json::array();
  for (const Row& row : rows) {
    const double us = row.measured.percentile_us(0.5);
    const Bandwidth width = bandwidth(row.what.bytes(), us, plan.ranks);
    Json samples = Json::array();
    if (row.what.timing != Timing::Each) {
      for (const double sample : row.measured.samples_us) samples.push_back(json_number(sample));
    }
    all.push_back({{"bytes", row.what.bytes()},
                   {"count", row.what.count},
                   {"dtype", text_of(row.what.dtype)},
                   {"op", text_of(row.what.op)},
                   {"codec", text_of(row.what.codec)},
                   {"in_place", row.what.in_place},
                   {"iterations", row.what.iterations},
                   {"time_us", json_number(us)},
                   {"min_us", json_number(row.measured.percentile_us(0))},
                   {"p99_us", json_number(row.measured.percentile_us(0.99))},
                   {"algbw_gb_s", json_number(width.algorithm_gb_s)},
                   {"busbw_gb_s", json_number(width.bus_gb_s)},
                   {"wrong", row.measured.wrong},
                   {"samples_us", std::move(samples)}});
  }
  return json_line({{"collective", "all_reduce"},
                    {"ranks", plan.ranks},
                    {"timing", timing_name(plan)},
                    {"memory", options.memory},
                    {"persistent", options.persistent},
                    {"rows", std::move(all)}});
}

ExitCode run_on_host(const Invocation& invocation, const BenchPlan& plan,
                     const BenchOptions& options) {
  TeamOptions team_options;
  team_options.ranks = plan.ranks;
  team_options.buffer_bytes = plan.sizes.back();
  team_options.memory = plan.memory;
  team_options.runtime_dir = invocation.runtime_dir;
  team_options.timeout = invocation.timeout_or(30);
  Result<RankTeam> team = RankTeam::start(team_options);
  if (!team) return report(team.error());

  std::vector<Row> rows;
  if (!invocation.json) {
    const std::string title = "# all_reduce, " + std::to_string(plan.ranks) + " ranks, " +
                              timing_name(plan) + " timing, " + options.memory + " memory" +
                              (options.persistent ? ", plans" : "") +
                              (plan.codec == Codec::None ? "" : ", codec " + options.codec) +
                              "; time: median over rounds of the slowest rank\n";
    if (print(title + heading(invocation.colour)) != ExitCode::Ok) return ExitCode::Failure;
  }
  std::uint64_t wrong = 0;
  for (const std::uint64_t bytes : plan.sizes) {
    for (const bool in_place : plan.in_place) {
      const BenchCase what = case_of(plan, options, bytes, in_place);
      Result<Measured> measured = team->run(what);
      if (!measured) return report(measured.error());
      wrong += measured->wrong;
      rows.push_back({what, std::move(*measured)});
      if (!invocation.json) print(line_of(rows.back(), plan.ranks, invocation.colour));
    }
  }
  const Status finished = team->finish();
  if (invocation.json) print(rows_json(rows, plan, options));
  if (!finished) return report(finished.error());
  if (wrong == 0) return ExitCode::Ok;
  return report(error(ErrorCode::DataLoss, Reason::Corrupt, wrong,
                      " elements are wrong: the #wrong column says where"));
}

void add_network_options(CLI::App& verb, BenchOptions& options) {
  CLI::Option* network =
      verb.add_flag("--network", options.network,
                    "Times what a step between nodes costs instead, piece by piece: a message to "
                    "each other daemon and back, bulk data both ways, and on GPUs a kernel's flag "
                    "to the CPU and back. Changes nothing that the daemon decides by");
  verb.add_option("--peer", options.daemons,
                  "With --network: only the daemon at this address of net.peers; may be repeated")
      ->type_name("ADDRESS")
      ->needs(network);
}

void add_accuracy_options(CLI::App& verb, BenchOptions& options) {
  CLI::Option* accuracy = verb.add_flag(
      "--accuracy", options.accuracy,
      "Holds results against the exact sum instead of timing them: signal over noise, the greatest "
      "error over its bound, and the mean error, of every codec (or --codec's) on data of several "
      "kinds. Fails where an element is beyond its bound");
  verb.add_option("--data", options.data,
                  "With --accuracy: recorded data, too: a file of float32, the first rank's part "
                  "first")
      ->type_name("FILE")
      ->needs(accuracy);
}

// Sizes, times and GPUs are of the timed bench.
Result<AccuracyPlan> accuracy_plan_as_typed(const CLI::App& verb, const BenchOptions& options) {
  for (const CLI::Option* one : verb.get_options()) {
    const bool is_its = one->check_name("--accuracy") || one->check_name("--data") ||
                        one->check_name("--dtype") || one->check_name("--op") ||
                        one->check_name("--codec") || one->check_name("--ranks");
    if (one->count() != 0 && !is_its) throw CLI::ExcludesError("--accuracy", one->get_name());
  }
  return accuracy_plan_of(AccuracyOptions{.dtype = options.dtype,
                                          .op = options.op,
                                          .codec = verb.count("--codec") != 0 ? options.codec : "",
                                          .ranks = options.ranks.value_or(2),
                                          .data = options.data});
}

// The others are of rank processes. (With excludes() each would say so in the help.)
void check_network_options(const CLI::App& verb) {
  for (const CLI::Option* one : verb.get_options()) {
    if (one->count() != 0 && !one->check_name("--network") && !one->check_name("--peer"))
      throw CLI::ExcludesError("--network", one->get_name());
  }
}

}  // namespace

void add_bench(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand(
      "bench",
      "Times AllReduce between rank processes and checks every result; or a step between nodes");
  auto options = std::make_shared<BenchOptions>();
  verb->add_option("-b,--min-size", options->from, "Smallest size in bytes")
      ->capture_default_str()
      ->type_name("SIZE");
  verb->add_option("-e,--max-size", options->to, "Largest size in bytes")
      ->capture_default_str()
      ->type_name("SIZE");
  verb->add_option("-f,--factor", options->factor, "From one size to the next")
      ->capture_default_str()
      ->check(CLI::Range(1.01, 1e6));
  verb->add_option("-n,--iterations", options->iterations,
                   "Operations per round; 0: 2 to 1000, by size, on GPUs 10 to 100")
      ->capture_default_str()
      ->check(CLI::Range(0u, kMaxSamples));
  verb->add_option("-w,--warmup", options->warmup,
                   "Operations before the clock starts; by default 5 to 4096, by size, on GPUs 20");
  verb->add_option("--rounds", options->rounds,
                   "Rounds per size; the median is reported; by default 5, on GPUs 21 to 101, by "
                   "size")
      ->check(CLI::Range(1u, 1000u));
  verb->add_option("-d,--dtype", options->dtype,
                   "float16, bfloat16, float32, float64, int8, uint8, int32, uint32, int64, uint64")
      ->capture_default_str();
  verb->add_option("-o,--op", options->op, "sum, prod, min, max or avg")->capture_default_str();
  verb->add_option(
          "--codec", options->codec,
          "On the host: none, fp8, q8, q6, q4, q8_rotated, q6_rotated or q4_rotated; results "
          "are held against the codec's bound")
      ->capture_default_str();
  verb->add_option("-r,--ranks", options->ranks,
                   "Rank processes, 2 unless --gpus says otherwise; on GPUs one on each")
      ->check(CLI::Range(1, kMaxRanks));
  verb->add_option("--device", options->device, "Where the ranks are: host or gpu")
      ->capture_default_str()
      ->check(CLI::IsMember({"host", "gpu"}));
  verb->add_option("--timing", options->timing,
                   "On the host latency (by default): one call after the other; throughput: 16 in "
                   "flight; p50: every call on its own. On GPUs cuda-events (by default): all of a "
                   "round, by the GPU's clock; throughput: the same, by the host's; latency: every "
                   "call on its own")
      ->check(CLI::IsMember({"latency", "throughput", "p50", "cuda-events"}));
  verb->add_option("--memory", options->memory,
                   "shared: arcMemAlloc; on the host registered: arcMemRegister; heap: neither; on "
                   "GPUs cuda: cuMemAlloc")
      ->capture_default_str()
      ->check(CLI::IsMember({"shared", "registered", "heap", "cuda"}));
  verb->add_option("--place", options->place, "in, out or both; by default both, on GPUs out")
      ->check(CLI::IsMember({"in", "out", "both"}));
  verb->add_flag("--plan", options->persistent, "Through a persistent plan");
  verb->add_option("--gpus", options->gpus,
                   "By rank, CUDA's numbers, such as 0,1,3; by default from 0 on")
      ->delimiter(',')
      ->check(CLI::Range(0, 1023));
  verb->add_option("--mode", options->mode,
                   "On GPUs: calls on a stream, a graph of ten that is replayed, or both, which is "
                   "the default")
      ->check(CLI::IsMember({"stream", "graph", "both"}));
  verb->add_option("--peers", options->peers,
                   "On GPUs, to measure against in the same run: nccl, nccl-symmetric")
      ->delimiter(',')
      ->check(CLI::IsMember({"nccl", "nccl-symmetric"}));
  verb->add_option("--nccl", options->nccl,
                   "The file to load NCCL from; by default libnccl.so.2, as the loader finds it")
      ->type_name("FILE");
  add_network_options(*verb, *options);
  add_accuracy_options(*verb, *options);
  add_examples(*verb, {"arctl bench -b 1K -e 64M -r 4 -d bfloat16",
                       "arctl bench --device gpu -r 2 -d float16 --peers nccl",
                       "arctl bench --network", "arctl bench --accuracy"});
  verb->callback([&invocation, options, verb] {
    if (options->network) {
      check_network_options(*verb);
      invocation.action = [&invocation, options] {
        return bench_network(invocation, options->daemons);
      };
      return;
    }
    if (options->accuracy) {
      const Result<AccuracyPlan> plan = accuracy_plan_as_typed(*verb, *options);
      if (!plan) throw CLI::ValidationError("bench", plan.error().message);
      invocation.action = [&invocation, plan = *plan] { return bench_accuracy(invocation, plan); };
      return;
    }
    const Result<BenchPlan> plan = plan_of(*options);
    if (!plan) throw CLI::ValidationError("bench", plan.error().message);
    invocation.action = [&invocation, options, plan = *plan] {
      return plan.device == RankDevice::Gpu ? bench_gpus(invocation, plan, *options)
                                            : run_on_host(invocation, plan, *options);
    };
  });
}

}  // namespace arcomm::arctl

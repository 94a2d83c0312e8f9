#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <optional>

#include "client/arctl/bench_case.h"
#include "client/arctl/rank_team.h"
#include "client/arctl/table.h"
#include "client/arctl/units.h"
#include "client/arctl/verbs.h"
#include "client/arctl/views.h"

namespace arcomm::arctl {
namespace {

struct BenchOptions {
  std::string from = "1K", to = "64M";
  double factor = 4;
  std::uint32_t iterations = 0;         // 0: by size
  std::optional<std::uint32_t> warmup;  // by size
  std::uint32_t rounds = 5;
  std::string dtype = "float32", op = "sum";
  int ranks = 2;
  std::string timing = "latency";
  std::string memory = "shared";
  std::string place = "both";
  bool persistent = false;
};

struct Plan {
  std::vector<std::uint64_t> sizes;  // bytes, ascending
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  Timing timing = Timing::Latency;
  RankMemory memory = RankMemory::Shared;
};

struct Row {
  BenchCase what;
  Measured measured;
};

std::optional<Plan> plan_of(const BenchOptions& options) {
  Plan plan;
  const auto from = parse_bytes(options.from), to = parse_bytes(options.to);
  const auto dtype = parse_dtype(options.dtype);
  const auto op = parse_op(options.op);
  if (!from || !to || *from > *to) {
    std::fprintf(stderr,
                 "arctl bench: -b and -e want sizes such as 1K and 64M, the first not above the "
                 "second; got %s and %s\n",
                 options.from.c_str(), options.to.c_str());
    return std::nullopt;
  }
  if (!dtype || !op) {
    std::fprintf(stderr, "arctl bench: unknown type or operation: %s, %s\n", options.dtype.c_str(),
                 options.op.c_str());
    return std::nullopt;
  }
  plan.dtype = *dtype;
  plan.op = *op;
  plan.timing = options.timing == "latency"      ? Timing::Latency
                : options.timing == "throughput" ? Timing::Throughput
                                                 : Timing::Each;
  plan.memory = options.memory == "shared"       ? RankMemory::Shared
                : options.memory == "registered" ? RankMemory::Registered
                                                 : RankMemory::Heap;
  const auto element = size_of(*dtype);
  auto bytes = static_cast<double>(*from);
  for (;;) {
    const auto whole = static_cast<std::uint64_t>(bytes) / element * element;
    if (plan.sizes.empty() || plan.sizes.back() != whole) plan.sizes.push_back(whole);
    if (bytes == 0 || bytes * options.factor > static_cast<double>(*to)) break;
    bytes *= options.factor;
  }
  return plan;
}

BenchCase case_of(const Plan& plan, const BenchOptions& options, std::uint64_t bytes,
                  bool in_place) {
  BenchCase what;
  what.count = bytes / size_of(plan.dtype);
  what.dtype = plan.dtype;
  what.op = plan.op;
  what.in_place = in_place;
  what.persistent = options.persistent;
  what.timing = plan.timing;
  what.iterations = options.iterations != 0 ? options.iterations : default_iterations(bytes);
  what.warmup = options.warmup.value_or(default_warmup(bytes));
  what.rounds = options.rounds;
  if (plan.timing == Timing::Each) {
    what.rounds = std::max(1u, std::min(what.rounds, kMaxSamples / what.iterations));
  }
  return what;
}

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

std::string rows_json(const std::vector<Row>& rows, const BenchOptions& options) {
  Json json;
  json.begin_object()
      .field("collective", "all_reduce")
      .field("ranks", options.ranks)
      .field("timing", options.timing)
      .field("memory", options.memory)
      .field("persistent", options.persistent);
  json.key("rows").begin_array();
  for (const Row& row : rows) {
    const double us = row.measured.percentile_us(0.5);
    const Bandwidth width = bandwidth(row.what.bytes(), us, options.ranks);
    json.begin_object()
        .field("bytes", row.what.bytes())
        .field("count", row.what.count)
        .field("dtype", text_of(row.what.dtype))
        .field("op", text_of(row.what.op))
        .field("in_place", row.what.in_place)
        .field("iterations", row.what.iterations)
        .field("time_us", us)
        .field("min_us", row.measured.percentile_us(0))
        .field("p99_us", row.measured.percentile_us(0.99))
        .field("algbw_gb_s", width.algorithm_gb_s)
        .field("busbw_gb_s", width.bus_gb_s)
        .field("wrong", row.measured.wrong);
    json.key("samples_us").begin_array();
    if (row.what.timing != Timing::Each) {
      for (const double sample : row.measured.samples_us) json.value(sample);
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

ExitCode run(const Invocation& invocation, const BenchOptions& options) {
  const auto plan = plan_of(options);
  if (!plan) return ExitCode::Usage;
  TeamOptions team_options;
  team_options.ranks = options.ranks;
  team_options.buffer_bytes = plan->sizes.back();
  team_options.memory = plan->memory;
  team_options.runtime_dir = invocation.runtime_dir;
  team_options.timeout = invocation.timeout_or(30);
  Result<RankTeam> team = RankTeam::start(team_options);
  if (!team) return report(team.error());

  std::vector<Row> rows;
  if (!invocation.json) {
    const std::string title = "# all_reduce, " + std::to_string(options.ranks) + " ranks, " +
                              options.timing + " timing, " + options.memory + " memory" +
                              (options.persistent ? ", plans" : "") +
                              "; time: median over rounds of the slowest rank\n";
    if (print(title + heading(invocation.colour)) != ExitCode::Ok) return ExitCode::Failure;
  }
  std::uint64_t wrong = 0;
  for (const std::uint64_t bytes : plan->sizes) {
    for (const bool in_place : {false, true}) {
      if (options.place == (in_place ? "out" : "in")) continue;
      const BenchCase what = case_of(*plan, options, bytes, in_place);
      Result<Measured> measured = team->run(what);
      if (!measured) return report(measured.error());
      wrong += measured->wrong;
      rows.push_back({what, std::move(*measured)});
      if (!invocation.json) print(line_of(rows.back(), options.ranks, invocation.colour));
    }
  }
  const Status finished = team->finish();
  if (invocation.json) print(rows_json(rows, options));
  if (!finished) return report(finished.error());
  if (wrong == 0) return ExitCode::Ok;
  return report(error(ErrorCode::DataLoss, Reason::Corrupt, wrong,
                      " elements are wrong: the #wrong column says where"));
}

}  // namespace

void add_bench(CLI::App& app, Invocation& invocation) {
  CLI::App* verb =
      app.add_subcommand("bench", "Times AllReduce between rank processes and checks every result");
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
                   "Operations per round; 0: 2 to 1000, by size")
      ->capture_default_str()
      ->check(CLI::Range(0u, kMaxSamples));
  verb->add_option("-w,--warmup", options->warmup,
                   "Operations before the clock starts; by default 5 to 4096, by size");
  verb->add_option("--rounds", options->rounds, "Rounds per size; the median is reported")
      ->capture_default_str()
      ->check(CLI::Range(1u, 1000u));
  verb->add_option("-d,--dtype", options->dtype,
                   "float16, bfloat16, float32, float64, int8, uint8, int32, uint32, int64, uint64")
      ->capture_default_str();
  verb->add_option("-o,--op", options->op, "sum, prod, min, max or avg")->capture_default_str();
  verb->add_option("-r,--ranks", options->ranks, "Rank processes")
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxRanks));
  verb->add_option(
          "--timing", options->timing,
          "latency: one call after the other; throughput: 16 in flight; p50: every call on its own")
      ->capture_default_str()
      ->check(CLI::IsMember({"latency", "throughput", "p50"}));
  verb->add_option("--memory", options->memory,
                   "shared: arcMemAlloc; registered: arcMemRegister; heap: neither")
      ->capture_default_str()
      ->check(CLI::IsMember({"shared", "registered", "heap"}));
  verb->add_option("--place", options->place, "in, out or both")
      ->capture_default_str()
      ->check(CLI::IsMember({"in", "out", "both"}));
  verb->add_flag("--plan", options->persistent, "Through a persistent plan");
  verb->callback([&invocation, options] {
    if (options->persistent && options->timing == "throughput") {
      throw CLI::ValidationError("--plan",
                                 "a plan has one start at a time: use latency or p50 timing");
    }
    invocation.action = [&invocation, options] { return run(invocation, *options); };
  });
}

}  // namespace arcomm::arctl

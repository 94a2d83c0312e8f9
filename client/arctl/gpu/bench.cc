#include "client/arctl/gpu/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "client/arctl/bench/rank_team.h"
#include "client/arctl/gpu/contenders/nccl_library.h"
#include "client/arctl/gpu/report.h"

namespace arcomm::arctl {
namespace {

constexpr std::uint32_t kPeerCopyRounds = 5;
// What arcommd keeps on the GPUs for the next operation would run beside a peer's first: more than
// gpu.lease_ms, which is 20 unless it is configured.
constexpr std::chrono::milliseconds kLeftoversEnd{50};

class GpuBench {
 public:
  GpuBench(RankTeam team, const Invocation& invocation, const BenchPlan& plan,
           const BenchOptions& options)
      : team_(std::move(team)), invocation_(invocation), options_(options) {
    run_.plan = plan;
    run_.nvls = nccl_nvls();
  }

  Status measure() {
    Status measured = measure_all();
    if (!measured) run_.failure = measured.error().message;
    return measured;
  }

  const GpuRun& run() const { return run_; }

 private:
  Status measure_all() {
    ARC_RETURN_IF_ERROR(measure_light());
    for (const Contender contender : run_.plan.contenders) ARC_RETURN_IF_ERROR(open(contender));
    show(gpu_heading(run_, invocation_.colour));
    for (const std::uint64_t bytes : run_.plan.sizes) {
      for (const bool in_place : run_.plan.in_place) {
        for (const bool in_graph : run_.plan.in_graph) {
          ARC_RETURN_IF_ERROR(measure_line(bytes, in_place, in_graph));
        }
      }
    }
    return team_.finish();
  }

  // Before anything else is on the GPUs.
  Status measure_light() {
    if (run_.plan.ranks < 2) {
      run_.light_why = "one GPU has no neighbour";
      return {};
    }
    BenchCase copies;
    copies.kind = CaseKind::PeerCopy;
    copies.rounds = kPeerCopyRounds;
    const Result<Measured> measured = team_.run(copies);
    if (!measured) return measured.error();
    if (measured->refused) {
      run_.light_why = measured->note;
    } else {
      run_.light_gb_s = bandwidth(kPeerCopyBytes, measured->percentile_us(0), 1).algorithm_gb_s;
    }
    return {};
  }

  Status open(Contender contender) {
    BenchCase what;
    what.kind = CaseKind::Open;
    what.contender = contender;
    Result<Measured> opened = team_.run(what);
    if (!opened) {
      Error failure = std::move(opened).error();
      if (contender != Contender::Arcommd)
        failure.message = "opening " + std::string(text_of(contender)) + ": " + failure.message;
      return failure;
    }
    run_.opened.push_back({contender, !opened->refused, opened->note});
    return {};
  }

  Status measure_line(std::uint64_t bytes, bool in_place, bool in_graph) {
    GpuLine line;
    for (const GpuOpened& each : run_.opened) {
      if (!each.is_open) continue;
      GpuFigure figure;
      if (each.contender != Contender::Arcommd) std::this_thread::sleep_for(kLeftoversEnd);
      figure.what = gpu_case_of(run_.plan, options_, bytes, in_place, each.contender, in_graph);
      Result<Measured> measured = team_.run(figure.what);
      if (!measured) {
        if (!line.empty()) run_.lines.push_back(std::move(line));
        Error failure = std::move(measured).error();
        failure.message = std::string(text_of(each.contender)) +
                          (in_graph ? " in a graph, " : " on a stream, ") + std::to_string(bytes) +
                          " bytes: " + failure.message;
        return failure;
      }
      figure.measured = std::move(*measured);
      line.push_back(std::move(figure));
    }
    show(gpu_line_text(run_, line, invocation_.colour));
    run_.lines.push_back(std::move(line));
    return {};
  }

  void show(const std::string& text) const {
    if (!invocation_.json) print(text);
  }

  RankTeam team_;
  const Invocation& invocation_;
  const BenchOptions& options_;
  GpuRun run_;
};

}  // namespace

ExitCode bench_gpus(const Invocation& invocation, const BenchPlan& plan,
                    const BenchOptions& options) {
  if (plan.contenders.size() > 1) {  // where it is missing, before anything is measured
    const Result<NcclLibrary> nccl = NcclLibrary::load(options.nccl);
    if (!nccl) return report(nccl.error());
  }
  TeamOptions team_options;
  team_options.ranks = plan.ranks;
  team_options.buffer_bytes = plan.sizes.back();
  team_options.memory = plan.memory;
  team_options.runtime_dir = invocation.runtime_dir;
  team_options.timeout = invocation.timeout_or(30);
  team_options.device = RankDevice::Gpu;
  team_options.gpus = plan.gpus;
  team_options.nccl = options.nccl;
  Result<RankTeam> team = RankTeam::start(team_options);
  if (!team) return report(team.error());
  GpuBench bench(std::move(*team), invocation, plan, options);
  const Status measured = bench.measure();
  // What was measured before a failure is worth having too.
  const bool shows = invocation.json && (measured.ok() || !bench.run().lines.empty());
  if (shows && print(gpu_json(bench.run())) != ExitCode::Ok) return ExitCode::Failure;
  if (!measured) return report(measured.error());
  const auto [wrong, first] = wrong_in(bench.run());
  if (wrong == 0) return ExitCode::Ok;
  return report(error(ErrorCode::DataLoss, Reason::Corrupt, wrong,
                      " elements are wrong: the #wrong column says where; the first: ", first));
}

}  // namespace arcomm::arctl

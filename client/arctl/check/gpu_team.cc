#include "client/arctl/check/gpu_team.h"

#include <algorithm>
#include <array>
#include <utility>

#include "client/arctl/bench/rank_team.h"

namespace arcomm::arctl {
namespace {

constexpr std::uint32_t kCopyRounds = 3;
// One element, a kilobyte or several less an element, and an odd count on either side of where
// resident operations end. Between them and the largest size, every launch path is taken.
constexpr std::array<std::uint64_t, 3> kGpuCounts = {1, 1023, 100'003};
constexpr std::array<DType, 3> kQuickTypes = {DType::Float16, DType::Float32, DType::Int32};

std::string words_of(const BenchCase& what) {
  return std::string(text_of(what.op)) + " of " + std::to_string(what.count) + " x " +
         std::string(text_of(what.dtype)) + (what.in_place ? " in place" : "") +
         (what.in_graph ? " in a graph" : " on a stream");
}

class GpuTeamRun {
 public:
  GpuTeamRun(const Invocation& invocation, GpuTeamCheck& check, RankTeam team)
      : invocation_(invocation), check_(check), team_(std::move(team)) {}

  Status run() {
    if (check_.plan.gpus.size() > 1) {
      ARC_RETURN_IF_ERROR(copy());
    } else {
      check_.copies_why = "one GPU has no neighbour";
    }
    ARC_RETURN_IF_ERROR(open());
    ask_for_paths();
    if (check_.plan.is_thorough) {
      for (unsigned dtype = 0; dtype < kDTypes; ++dtype) {
        for (unsigned op = 0; op < kReduceOps; ++op)
          ARC_RETURN_IF_ERROR(reduce(static_cast<DType>(dtype), static_cast<ReduceOp>(op)));
      }
    } else {
      for (const DType dtype : kQuickTypes) ARC_RETURN_IF_ERROR(reduce(dtype, ReduceOp::Sum));
    }
    return team_.finish();
  }

 private:
  // Before the daemon has anything on the GPUs.
  Status copy() {
    BenchCase what;
    what.kind = CaseKind::PeerCopy;
    what.rounds = kCopyRounds;
    const Result<Measured> measured = team_.run(what);
    if (!measured) return measured.error();
    if (measured->refused) {
      check_.copies_why = measured->note;
    } else {
      check_.copies_gb_s = bandwidth(kPeerCopyBytes, measured->percentile_us(0), 1).algorithm_gb_s;
    }
    return {};
  }

  Status open() {
    BenchCase what;
    what.kind = CaseKind::Open;
    const Result<Measured> opened = team_.run(what);
    if (!opened) return opened.error();
    check_.gpu = opened->note;
    return {};
  }

  // Clients need not be allowed to ask: that is no reason to test nothing.
  void ask_for_paths() {
    Result<Admin> admin = invocation_.connect();
    Result<v1::CommunicatorsReply> reply =
        admin ? admin->communicators() : Result<v1::CommunicatorsReply>(admin.error());
    if (!reply) {
      check_.communicator_why = reply.error().message;
    } else if (keep_communicators(*reply, team_.communicator())) {
      check_.communicator = reply->communicators(0);
    } else {
      check_.communicator_why = "the daemon does not list their communicator";
    }
  }

  Status reduce(DType dtype, ReduceOp op) {
    for (const std::uint64_t count : kGpuCounts) {
      for (const bool in_place : {false, true}) {
        for (const bool in_graph : {false, true})
          ARC_RETURN_IF_ERROR(reduce(dtype, op, count, in_place, in_graph));
      }
    }
    const std::uint64_t largest = check_.plan.largest_bytes / size_of(dtype);
    return largest > kGpuCounts.back() ? reduce(dtype, op, largest, false, false) : Status();
  }

  Status reduce(DType dtype, ReduceOp op, std::uint64_t count, bool in_place, bool in_graph) {
    BenchCase what;
    what.count = count;
    what.dtype = dtype;
    what.op = op;
    what.in_place = in_place;
    what.in_graph = in_graph;
    what.timing = Timing::Each;
    Result<Measured> measured = team_.run(what);
    if (!measured) {
      Error failure = std::move(measured).error();
      failure.message = words_of(what) + ": " + failure.message;
      return failure;
    }
    ++check_.operations;
    check_.bytes += what.bytes();
    if (check_.wrong == 0 && measured->wrong != 0)
      check_.first_wrong = words_of(what) + ": " + measured->note;
    check_.wrong += measured->wrong;
    check_.slowest_us = std::max(check_.slowest_us, measured->percentile_us(1));
    return {};
  }

  const Invocation& invocation_;
  GpuTeamCheck& check_;
  RankTeam team_;
};

}  // namespace

GpuTeamCheck check_gpu_team(const Invocation& invocation, const GpuTeamPlan& plan) {
  GpuTeamCheck check;
  check.plan = plan;
  TeamOptions options;
  options.ranks = static_cast<int>(plan.gpus.size());
  options.buffer_bytes = std::max(plan.largest_bytes, kGpuCounts.back() * sizeof(double));
  options.memory = plan.memory;
  options.device = RankDevice::Gpu;
  options.gpus = plan.gpus;
  options.runtime_dir = invocation.runtime_dir;
  options.timeout = invocation.timeout_or(30);
  Result<RankTeam> team = RankTeam::start(options);
  check.outcome = team ? GpuTeamRun(invocation, check, std::move(*team)).run()
                       : Status(std::move(team).error());
  return check;
}

}  // namespace arcomm::arctl

#include "client/arctl/check/gpus.h"

#include <algorithm>
#include <numeric>

#include "client/arctl/bench/rank_team.h"

namespace arcomm::arctl {
namespace {

bool serves_gpus(const v1::StatusReply& status) {
  return std::any_of(status.workers().begin(), status.workers().end(),
                     [](const v1::WorkerStatus& worker) { return worker.device() == "gpu"; });
}

// In a process of its own: a driver that hangs must not hold this one.
Result<GpusSeen> survey(const Invocation& invocation) {
  TeamOptions options;
  options.ranks = 1;
  options.device = RankDevice::Gpu;
  options.gpus = {0};
  options.runtime_dir = invocation.runtime_dir;
  options.timeout = invocation.timeout_or(30);
  Result<RankTeam> team = RankTeam::start(options);
  if (!team) return std::move(team).error();
  BenchCase what;
  what.kind = CaseKind::Survey;
  const Result<Measured> measured = team->run(what);
  if (!measured) {
    Error failure = measured.error();
    constexpr std::string_view kRank = "rank 0: ";  // there is no other
    if (failure.message.starts_with(kRank)) failure.message.erase(0, kRank.size());
    return failure;
  }
  ARC_RETURN_IF_ERROR(team->finish());
  return measured->seen;
}

std::vector<int> chosen(const GpuCheckOptions& options, const GpusSeen& seen) {
  if (!options.gpus.empty()) return options.gpus;
  std::vector<int> all(std::min<std::size_t>(static_cast<std::size_t>(seen.count), kMaxGpuRanks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// The next teams would end the same way, one deadline after the other.
bool ends_all(const Error& failure) {
  return failure.code == ErrorCode::DeadlineExceeded || failure.code == ErrorCode::NotFound ||
         failure.code == ErrorCode::PermissionDenied || failure.reason == Reason::NotRunning ||
         failure.reason == Reason::DaemonLost;
}

GpuCheck not_tested(GpuCheck check, std::string why, Status outcome) {
  check.not_tested = std::move(why);
  check.outcome = std::move(outcome);
  return check;
}

}  // namespace

std::uint64_t GpuCheck::wrong() const {
  std::uint64_t sum = 0;
  for (const GpuTeamCheck& team : teams) sum += team.wrong;
  return sum;
}

std::vector<GpuTeamPlan> gpu_teams(const std::vector<int>& gpus, std::uint64_t largest_bytes) {
  std::vector<GpuTeamPlan> teams;
  if (gpus.size() > 2) {
    for (std::size_t one = 0; one < gpus.size(); ++one) {
      for (std::size_t other = one + 1; other < gpus.size(); ++other)
        teams.push_back({.gpus = {gpus[one], gpus[other]}, .largest_bytes = largest_bytes});
    }
  }
  teams.push_back({.gpus = gpus, .is_thorough = true, .largest_bytes = largest_bytes});
  teams.push_back({.gpus = gpus, .memory = RankMemory::Cuda, .largest_bytes = largest_bytes});
  return teams;
}

std::vector<std::string> gpu_remarks(const v1::StatusReply* status, const GpusSeen& seen) {
  std::vector<std::string> remarks;
  if (status != nullptr) {
    bool tells_of_mps = false;
    for (const std::string& warning : status->warnings()) {
      const bool is_of_mps = warning.find("MPS") != std::string::npos;
      tells_of_mps = tells_of_mps || is_of_mps;
      if (is_of_mps || warning.find("GPU") != std::string::npos) remarks.push_back(warning);
    }
    const std::string& backend = status->backend();
    if (backend.ends_with(", no MPS") && !tells_of_mps) {
      remarks.emplace_back(
          "MPS does not serve the daemon (gpu.mps): every operation that is not in-stream takes "
          "about 280 us longer");
    } else if (backend.ends_with(", MPS") && !seen.under_mps) {
      remarks.emplace_back(
          "MPS serves the daemon and not this process: every operation that is not in-stream takes "
          "longer. Set CUDA_MPS_PIPE_DIRECTORY to the folder that the daemon's log names");
    }
  }
  if (seen.count > static_cast<int>(kMaxGpuRanks)) {
    remarks.push_back("this process sees " + std::to_string(seen.count) + " GPUs, and the first " +
                      std::to_string(kMaxGpuRanks) +
                      " are tested, as many as a communicator takes: --gpus names others");
  }
  return remarks;
}

GpuCheck check_gpus(const Invocation& invocation, const GpuCheckOptions& options) {
  GpuCheck check;
  Result<Admin> admin = invocation.connect();
  const Result<v1::StatusReply> status =
      admin ? admin->status() : Result<v1::StatusReply>(admin.error());
  const bool is_needed = options.is_wanted || (status && serves_gpus(*status));
  if (status) check.backend = status->backend();
  const Result<GpusSeen> seen = survey(invocation);
  if (!seen) {
    Status outcome = is_needed ? Status(seen.error()) : Status();
    return not_tested(std::move(check), seen.error().message, std::move(outcome));
  }
  check.seen = *seen;
  if (status && !is_needed) {
    return not_tested(std::move(check),
                      "the daemon serves none (backend " + check.backend + "): its log says why",
                      {});
  }
  check.remarks = gpu_remarks(status ? &*status : nullptr, *seen);
  if (!status) {
    check.remarks.push_back("the daemon's state and launch paths are not shown: " +
                            status.error().message);
  }
  for (const GpuTeamPlan& plan : gpu_teams(chosen(options, *seen), options.largest_bytes)) {
    check.teams.push_back(check_gpu_team(invocation, plan));
    const Status& outcome = check.teams.back().outcome;
    if (outcome) continue;
    const ErrorCode code = outcome.error().code;
    if (code == ErrorCode::NotFound && !is_needed) {
      check.teams.clear();
      return not_tested(std::move(check), "the daemon serves none", {});
    }
    if (check.outcome) check.outcome = outcome;
    if (ends_all(outcome.error())) {
      check.remarks.emplace_back("the test ended there: what else was to be tested was not");
      break;
    }
  }
  return check;
}

}  // namespace arcomm::arctl

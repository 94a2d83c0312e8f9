#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/arctl/check/gpu_report.h"
#include "client/arctl/check/gpus.h"
#include "client/arctl/check/host.h"
#include "client/arctl/command_line/units.h"
#include "client/arctl/verbs.h"

namespace arcomm::arctl {
namespace {

struct CheckOptions {
  int ranks = 2;  // on the host
  std::string device = "all";
  std::vector<int> gpus;
  std::string largest = "20M";
};

ExitCode outcome_of(const GpuCheck& check) {
  if (check.wrong() != 0) {
    return report(error(ErrorCode::DataLoss, Reason::Corrupt, check.wrong(),
                        " elements are wrong on GPUs: see above which, and where the first is"));
  }
  return check.outcome ? ExitCode::Ok : report(check.outcome.error());
}

ExitCode run(const Invocation& invocation, const CheckOptions& options, std::uint64_t largest) {
  std::optional<HostCheck> host;
  std::optional<GpuCheck> gpus;
  if (options.device != "gpu") {
    Result<HostCheck> checked = check_host(invocation, options.ranks);
    if (!checked) return report(checked.error());
    host = std::move(*checked);
    if (!invocation.json && print(host_check_text(*host, invocation.colour)) != ExitCode::Ok)
      return ExitCode::Failure;
  }
  if (options.device != "host") {
    gpus = check_gpus(
        invocation,
        {.is_wanted = options.device == "gpu", .gpus = options.gpus, .largest_bytes = largest});
    const std::string text = (host ? "\n" : "") + gpu_check_text(*gpus, invocation.colour);
    if (!invocation.json && print(text) != ExitCode::Ok) return ExitCode::Failure;
  }
  const bool is_host_right = !host || host->wrong() == 0;
  if (invocation.json) {
    Json json = Json::object();
    if (host) {
      json["ranks"] = host->ranks;
      json["checks"] = host_check_json(*host);
    }
    if (gpus) json["gpus"] = gpu_check_json(*gpus);
    json["wrong"] = (host ? host->wrong() : 0) + (gpus ? gpus->wrong() : 0);
    json["ok"] = is_host_right && (!gpus || (gpus->outcome.ok() && gpus->wrong() == 0));
    if (print(json_line(json)) != ExitCode::Ok) return ExitCode::Failure;
  }
  const ExitCode on_gpus = gpus ? outcome_of(*gpus) : ExitCode::Ok;
  return is_host_right ? on_gpus : ExitCode::Failure;
}

}  // namespace

void add_check(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand(
      "check",
      "Self-test: rank processes reduce every type with every operation, on the host and on the "
      "GPUs that the daemon serves, and each element is checked");
  auto options = std::make_shared<CheckOptions>();
  verb->add_option("-r,--ranks", options->ranks, "Rank processes on the host")
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxRanks));
  verb->add_option("--device", options->device,
                   "host, gpu, or all: the host, and the GPUs where the daemon serves any")
      ->capture_default_str()
      ->check(CLI::IsMember({"all", "host", "gpu"}));
  verb->add_option("--gpus", options->gpus,
                   "Which GPUs, CUDA's numbers, such as 0,1,3; by default all that are seen, 8 at "
                   "most")
      ->delimiter(',')
      ->check(CLI::Range(0, 1023));
  verb->add_option("-e,--max-size", options->largest, "On GPUs: the largest size in bytes")
      ->capture_default_str()
      ->type_name("SIZE");
  add_examples(*verb, {"arctl check", "arctl check --device gpu --gpus 0,1"});
  verb->callback([&invocation, options] {
    const auto largest = parse_bytes(options->largest);
    if (!largest) {
      throw CLI::ValidationError("check", "-e wants a size such as 20M; got " + options->largest);
    }
    if (options->gpus.size() > kMaxGpuRanks) {
      throw CLI::ValidationError("check", "--gpus names " + std::to_string(options->gpus.size()) +
                                              " GPUs: a communicator takes " +
                                              std::to_string(kMaxGpuRanks));
    }
    for (std::size_t i = 0; i < options->gpus.size(); ++i) {
      const auto begin = options->gpus.begin(), end = begin + static_cast<std::ptrdiff_t>(i);
      if (std::find(begin, end, options->gpus[i]) != end) {
        throw CLI::ValidationError(
            "check", "--gpus names GPU " + std::to_string(options->gpus[i]) + " twice");
      }
    }
    invocation.action = [&invocation, options, largest = *largest] {
      return run(invocation, *options, largest);
    };
  });
}

}  // namespace arcomm::arctl

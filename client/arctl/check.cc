#include <algorithm>
#include <array>

#include "client/arctl/bench/rank_team.h"
#include "client/arctl/command_line/units.h"
#include "client/arctl/verbs.h"
#include "client/arctl/view/table.h"
#include "client/arctl/view/views.h"

namespace arcomm::arctl {
namespace {

// Nothing, one element, odd counts, one page and its neighbours, and more than any cache level
// holds of one chunk.
constexpr std::array<std::uint64_t, 7> kCounts = {0, 1, 7, 1023, 1025, 65'536, 1'000'003};

struct Checked {
  DType dtype = DType::Float32;
  std::uint64_t operations = 0, bytes = 0, wrong = 0;
  double slowest_us = 0;
};

Result<Checked> check_dtype(RankTeam& team, DType dtype) {
  Checked checked;
  checked.dtype = dtype;
  for (unsigned op = 0; op < kReduceOps; ++op) {
    for (const std::uint64_t count : kCounts) {
      for (const bool in_place : {false, true}) {
        BenchCase what;
        what.count = count;
        what.dtype = dtype;
        what.op = static_cast<ReduceOp>(op);
        what.in_place = in_place;
        Result<Measured> measured = team.run(what);
        if (!measured) {
          Error failure = std::move(measured).error();
          failure.message = std::string(text_of(what.op)) + " of " + std::to_string(count) + " x " +
                            std::string(text_of(dtype)) + ": " + failure.message;
          return failure;
        }
        ++checked.operations;
        checked.bytes += what.bytes();
        checked.wrong += measured->wrong;
        checked.slowest_us = std::max(checked.slowest_us, measured->percentile_us(1));
      }
    }
  }
  return checked;
}

std::string text_of_checks(const std::vector<Checked>& checks, int ranks, bool colour) {
  Table table({{"TYPE"},
               {"OPERATIONS", Align::Right},
               {"DATA", Align::Right},
               {"SLOWEST", Align::Right},
               {"WRONG", Align::Right},
               {"RESULT"}});
  std::uint64_t operations = 0, wrong = 0;
  for (const Checked& checked : checks) {
    table.add(
        {std::string(text_of(checked.dtype)),
         std::to_string(checked.operations),
         human_bytes(checked.bytes),
         human_us(checked.slowest_us),
         std::to_string(checked.wrong),
         {checked.wrong == 0 ? "ok" : "WRONG", checked.wrong == 0 ? Colour::Green : Colour::Red}});
    operations += checked.operations;
    wrong += checked.wrong;
  }
  return table.text(colour) + "\n" + std::to_string(operations) + " AllReduces between " +
         std::to_string(ranks) + " processes: " +
         (wrong == 0
              ? painted("all results are right", Colour::Green, colour)
              : painted(std::to_string(wrong) + " elements are wrong", Colour::Red, colour)) +
         "\n";
}

std::string json_of_checks(const std::vector<Checked>& checks, int ranks) {
  std::uint64_t wrong = 0;
  Json all = Json::array();
  for (const Checked& checked : checks) {
    all.push_back({{"dtype", text_of(checked.dtype)},
                   {"operations", checked.operations},
                   {"bytes", checked.bytes},
                   {"slowest_us", json_number(checked.slowest_us)},
                   {"wrong", checked.wrong}});
    wrong += checked.wrong;
  }
  return json_line(
      {{"ranks", ranks}, {"checks", std::move(all)}, {"wrong", wrong}, {"ok", wrong == 0}});
}

ExitCode run(const Invocation& invocation, int ranks) {
  TeamOptions options;
  options.ranks = ranks;
  options.buffer_bytes = kCounts.back() * sizeof(double);
  options.runtime_dir = invocation.runtime_dir;
  options.timeout = invocation.timeout_or(30);
  Result<RankTeam> team = RankTeam::start(options);
  if (!team) return report(team.error());
  std::vector<Checked> checks;
  std::uint64_t wrong = 0;
  for (unsigned number = 0; number < kDTypes; ++number) {
    Result<Checked> checked = check_dtype(*team, static_cast<DType>(number));
    if (!checked) return report(checked.error());
    wrong += checked->wrong;
    checks.push_back(*checked);
  }
  if (const Status finished = team->finish(); !finished) return report(finished.error());
  const ExitCode code = wrong == 0 ? ExitCode::Ok : ExitCode::Failure;
  return print(invocation.json ? json_of_checks(checks, ranks)
                               : text_of_checks(checks, ranks, invocation.colour),
               code);
}

}  // namespace

void add_check(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand("check",
                                      "Self-test: rank processes reduce every type with every "
                                      "operation, and each element is checked");
  auto ranks = std::make_shared<int>(2);
  verb->add_option("-r,--ranks", *ranks, "Rank processes")
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxRanks));
  add_examples(*verb, {"arctl check"});
  verb->callback([&invocation, ranks] {
    invocation.action = [&invocation, ranks] { return run(invocation, *ranks); };
  });
}

}  // namespace arcomm::arctl

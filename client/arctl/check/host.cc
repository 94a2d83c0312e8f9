#include "client/arctl/check/host.h"

#include <algorithm>
#include <array>

#include "client/arctl/bench/rank_team.h"
#include "client/arctl/command_line/units.h"
#include "client/arctl/view/table.h"

namespace arcomm::arctl {
namespace {

// Nothing, one element, odd counts, one page and its neighbours, and more than any cache level
// holds of one chunk.
constexpr std::array<std::uint64_t, 7> kHostCounts = {0, 1, 7, 1023, 1025, 65'536, 1'000'003};

Result<HostTypeCheck> check_type(RankTeam& team, DType dtype) {
  HostTypeCheck checked;
  checked.dtype = dtype;
  for (unsigned op = 0; op < kReduceOps; ++op) {
    for (const std::uint64_t count : kHostCounts) {
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

}  // namespace

std::uint64_t HostCheck::wrong() const {
  std::uint64_t sum = 0;
  for (const HostTypeCheck& each : types) sum += each.wrong;
  return sum;
}

Result<HostCheck> check_host(const Invocation& invocation, int ranks) {
  TeamOptions options;
  options.ranks = ranks;
  options.buffer_bytes = kHostCounts.back() * sizeof(double);
  options.runtime_dir = invocation.runtime_dir;
  options.timeout = invocation.timeout_or(30);
  Result<RankTeam> team = RankTeam::start(options);
  if (!team) return std::move(team).error();
  HostCheck check{.ranks = ranks, .types = {}};
  for (unsigned number = 0; number < kDTypes; ++number) {
    Result<HostTypeCheck> checked = check_type(*team, static_cast<DType>(number));
    if (!checked) return std::move(checked).error();
    check.types.push_back(*checked);
  }
  ARC_RETURN_IF_ERROR(team->finish());
  return check;
}

std::string host_check_text(const HostCheck& check, bool colour) {
  Table table({{"TYPE"},
               {"OPERATIONS", Align::Right},
               {"DATA", Align::Right},
               {"SLOWEST", Align::Right},
               {"WRONG", Align::Right},
               {"RESULT"}});
  std::uint64_t operations = 0;
  for (const HostTypeCheck& each : check.types) {
    table.add({std::string(text_of(each.dtype)),
               std::to_string(each.operations),
               human_bytes(each.bytes),
               human_us(each.slowest_us),
               std::to_string(each.wrong),
               {each.wrong == 0 ? "ok" : "WRONG", each.wrong == 0 ? Colour::Green : Colour::Red}});
    operations += each.operations;
  }
  const std::uint64_t wrong = check.wrong();
  return table.text(colour) + "\n" + std::to_string(operations) + " AllReduces between " +
         std::to_string(check.ranks) + " processes: " +
         (wrong == 0
              ? painted("all results are right", Colour::Green, colour)
              : painted(std::to_string(wrong) + " elements are wrong", Colour::Red, colour)) +
         "\n";
}

Json host_check_json(const HostCheck& check) {
  Json all = Json::array();
  for (const HostTypeCheck& each : check.types) {
    all.push_back({{"dtype", text_of(each.dtype)},
                   {"operations", each.operations},
                   {"bytes", each.bytes},
                   {"slowest_us", json_number(each.slowest_us)},
                   {"wrong", each.wrong}});
  }
  return all;
}

}  // namespace arcomm::arctl

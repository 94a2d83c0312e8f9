#include "client/arctl/check/gpu_report.h"

#include <utility>

#include "client/arctl/command_line/units.h"
#include "client/arctl/view/table.h"
#include "client/arctl/view/views.h"

namespace arcomm::arctl {
namespace {

std::string memory_text(RankMemory memory) {
  return memory == RankMemory::Cuda ? "cuMemAlloc" : "arcMemAlloc";
}

std::string listed(const std::vector<int>& gpus, const char* between) {
  std::string text;
  for (const int gpu : gpus) text += (text.empty() ? "" : between) + std::to_string(gpu);
  return text;
}

Cell result_of(const GpuTeamCheck& team) {
  if (team.wrong != 0) return {"WRONG", Colour::Red};
  if (!team.outcome) return {"FAILED", Colour::Red};
  return {"ok", Colour::Green};
}

// Sentences of teams; one that several teams have is said once, with all of their names.
class Sayings {
 public:
  void add(const GpuTeamCheck& team, const std::string& text) {
    if (text.empty()) return;
    const std::string who = gpus_text(team.plan.gpus);
    for (auto& [said, names] : all_) {
      if (said != text) continue;
      if (names.back() != who) names.push_back(who);
      return;
    }
    all_.push_back({text, {who}});
  }
  std::string text(Colour paint, bool colour) const {
    std::string out;
    for (const auto& [said, names] : all_) {
      std::string line;
      for (const std::string& name : names) line += (line.empty() ? "" : "; ") + name;
      out += painted(line + ": " + printable(said), paint, colour) + "\n";
    }
    return out;
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> all_;
};

Json team_json(const GpuTeamCheck& team) {
  Json json = {{"gpus", team.plan.gpus},
               {"gpu", team.gpu},
               {"memory", memory_text(team.plan.memory)},
               {"copies_gb_s", team.copies_gb_s ? json_number(*team.copies_gb_s) : Json()},
               {"copies_why", team.copies_why},
               {"operations", team.operations},
               {"bytes", team.bytes},
               {"slowest_us", json_number(team.slowest_us)},
               {"wrong", team.wrong},
               {"first_wrong", team.first_wrong},
               {"error", team.outcome ? "" : team.outcome.error().message}};
  json["launches"] = team.communicator ? launches_json(*team.communicator) : Json::array();
  json["launches_why"] = team.communicator_why;
  json["why_not_in_stream"] = team.communicator ? team.communicator->why_not_in_stream() : "";
  return json;
}

}  // namespace

std::string gpus_text(const std::vector<int>& gpus) {
  return (gpus.size() == 1 ? "GPU " : "GPUs ") + listed(gpus, ", ");
}

std::string gpu_check_text(const GpuCheck& check, bool colour) {
  if (!check.not_tested.empty())
    return "GPUs are not tested: " + printable(check.not_tested) + "\n";
  Table table({{"GPUS"},
               {"MEMORY"},
               {"COPIES", Align::Right},
               {"OPERATIONS", Align::Right},
               {"DATA", Align::Right},
               {"SLOWEST", Align::Right},
               {"WRONG", Align::Right},
               {"RESULT"}});
  Sayings bad, paths, missing;
  std::uint64_t operations = 0;
  for (const GpuTeamCheck& team : check.teams) {
    table.add({listed(team.plan.gpus, ","), memory_text(team.plan.memory),
               team.copies_gb_s ? fixed(*team.copies_gb_s, 1) + " GB/s" : "-",
               std::to_string(team.operations), human_bytes(team.bytes), human_us(team.slowest_us),
               std::to_string(team.wrong), result_of(team)});
    operations += team.operations;
    bad.add(team, team.first_wrong);
    if (!team.outcome) bad.add(team, team.outcome.error().message);
    if (!team.copies_why.empty() && team.plan.gpus.size() > 1)
      missing.add(team, "copies were not timed: " + team.copies_why);
    if (team.communicator) {
      paths.add(team, launches_text(*team.communicator));
      const std::string& why = team.communicator->why_not_in_stream();
      if (!why.empty()) missing.add(team, "why not more in-stream: " + why);
    }
  }
  std::string out =
      (check.backend.empty() ? "GPUs" : "GPUs, the daemon's backend " + printable(check.backend)) +
      "; this process sees " + std::to_string(check.seen.count) + "\n\n" + table.text(colour) +
      "\n" + bad.text(Colour::Red, colour) + paths.text(Colour::Plain, colour) +
      missing.text(Colour::Yellow, colour);
  for (const std::string& remark : check.remarks)
    out += painted("warning: " + printable(remark), Colour::Yellow, colour) + "\n";
  const std::uint64_t wrong = check.wrong();
  out += std::to_string(operations) + " AllReduces on GPUs: ";
  if (wrong != 0) {
    out += painted(std::to_string(wrong) + " elements are wrong", Colour::Red, colour);
  } else if (!check.outcome) {
    out += painted("not all of them were done", Colour::Red, colour);
  } else {
    out += painted("all results are right", Colour::Green, colour);
  }
  return out + "\n";
}

Json gpu_check_json(const GpuCheck& check) {
  Json teams = Json::array(), remarks = Json::array();
  for (const GpuTeamCheck& team : check.teams) teams.push_back(team_json(team));
  for (const std::string& remark : check.remarks) remarks.push_back(remark);
  return {{"tested", check.not_tested.empty()},
          {"why_not", check.not_tested},
          {"backend", check.backend},
          {"seen", check.seen.count},
          {"under_mps", check.seen.under_mps},
          {"teams", std::move(teams)},
          {"remarks", std::move(remarks)},
          {"wrong", check.wrong()},
          {"ok", check.outcome.ok() && check.wrong() == 0}};
}

}  // namespace arcomm::arctl

#include <algorithm>
#include <utility>
#include <vector>

#include "client/arctl/command_line/units.h"
#include "client/arctl/view/table.h"
#include "client/arctl/view/views.h"
#include "proto/types.h"

namespace arcomm::arctl {
namespace {

Json members_json(const v1::CommunicatorStatus& communicator) {
  Json members = Json::array();
  for (const v1::RankStatus& member : communicator.members()) {
    members.push_back({{"rank", member.rank()},
                       {"pid", member.pid()},
                       {"session", id_text(member.session())},
                       {"last_seq", member.last_seq()},
                       {"waiting", member.waiting()}});
    if (!member.node().empty()) members.back()["node"] = member.node();
  }
  return members;
}

// What this daemon knows of a rank of another node is what it waits for, and not what it has done.
std::string calls_text(const v1::RankStatus& member) {
  return is_elsewhere(member) ? "-" : std::to_string(member.last_seq());
}

// "none" of a daemon that says nothing, and while it is formed.
std::string default_codec_text(const v1::CommunicatorStatus& communicator) {
  return communicator.default_codec().empty() ? std::string(text_of(Codec::None))
                                              : communicator.default_codec();
}

}  // namespace

bool is_elsewhere(const v1::RankStatus& member) {
  return member.session() == 0 && !member.node().empty();
}

Json launches_json(const v1::CommunicatorStatus& communicator) {
  Json launches = Json::array();
  for (const v1::LaunchStretch& stretch : communicator.launches()) {
    launches.push_back({{"types", stretch.types()},
                        {"path", stretch.path()},
                        {"most_bytes", stretch.most_bytes()}});
    if (!stretch.algorithm().empty()) launches.back()["algorithm"] = stretch.algorithm();
  }
  return launches;
}

std::string launches_text(const v1::CommunicatorStatus& communicator) {
  std::string out;
  const v1::LaunchStretch* before = nullptr;
  for (const v1::LaunchStretch& stretch : communicator.launches()) {
    const bool is_first = before == nullptr || before->types() != stretch.types();
    if (is_first) {
      out += (out.empty() ? "" : "; ") + stretch.types() + ": ";
    } else {
      out += ", ";
    }
    out += stretch.path();
    if (!stretch.algorithm().empty()) out += " (" + stretch.algorithm() + ")";
    const bool is_last = stretch.most_bytes() == ~std::uint64_t{0};
    if (!is_last) out += " to " + human_bytes(stretch.most_bytes());
    if (is_last && !is_first) out += " above";
    before = &stretch;
  }
  return out;
}

bool keep_communicators(v1::CommunicatorsReply& reply, std::string_view prefix) {
  auto& all = *reply.mutable_communicators();
  all.erase(std::remove_if(all.begin(), all.end(),
                           [prefix](const v1::CommunicatorStatus& communicator) {
                             return !communicator.id().starts_with(prefix);
                           }),
            all.end());
  return !all.empty();
}

std::vector<const v1::RankStatus*> lagging_ranks(const v1::CommunicatorStatus& communicator) {
  std::vector<const v1::RankStatus*> least;
  bool differ = false;
  for (const v1::RankStatus& member : communicator.members()) {
    if (is_elsewhere(member)) continue;
    if (!least.empty() && least.front()->last_seq() != member.last_seq()) {
      differ = true;
      if (least.front()->last_seq() < member.last_seq()) continue;
      least.clear();
    }
    least.push_back(&member);
  }
  return differ ? least : std::vector<const v1::RankStatus*>();
}

std::string diagnosis_of(const v1::CommunicatorStatus& communicator) {
  if (!communicator.diagnosis().empty()) return communicator.diagnosis();
  if (communicator.state() != "ready") return communicator.state();
  const bool somebody_waits =
      std::any_of(communicator.members().begin(), communicator.members().end(),
                  [](const v1::RankStatus& member) { return !member.waiting().empty(); });
  const std::vector<const v1::RankStatus*> last = lagging_ranks(communicator);
  // Ranks that run a little apart are normal: only a rank that others wait for is worth a sentence.
  if (last.empty() || !somebody_waits) return "";
  std::string who;
  for (const v1::RankStatus* one : last) {
    who += (who.empty() ? "rank " : ", rank ") + std::to_string(one->rank()) + " (pid " +
           std::to_string(one->pid()) + ")";
  }
  return who + (last.size() == 1 ? " is behind: it has" : " are behind: they have") + " called " +
         std::to_string(last.front()->last_seq()) + " operations and others wait for " +
         (last.size() == 1 ? "it" : "them");
}

std::string communicators_text(const v1::CommunicatorsReply& reply, bool colour) {
  if (reply.communicators_size() == 0) return "no communicator exists\n";
  std::string out;
  for (const v1::CommunicatorStatus& communicator : reply.communicators()) {
    if (!out.empty()) out += "\n";
    const bool ready = communicator.state() == "ready";
    out +=
        painted(printable(communicator.id()), Colour::Bold, colour) + "  " +
        painted(printable(communicator.state()), ready ? Colour::Green : Colour::Yellow, colour) +
        "  " + std::to_string(communicator.ranks()) + " ranks  epoch " +
        std::to_string(communicator.epoch()) + "  " + human_count(communicator.operations_done()) +
        " done  " + human_count(communicator.operations_failed()) + " failed\n";
    const bool spans_nodes = std::ranges::any_of(
        communicator.members(), [](const auto& member) { return !member.node().empty(); });
    std::vector<Column> columns = {{"  RANK", Align::Right},
                                   {"PID", Align::Right},
                                   {"SESSION"},
                                   {"CALLED", Align::Right},
                                   {"WAITS FOR"}};
    if (spans_nodes) columns.insert(columns.begin() + 1, {"NODE"});
    Table table(std::move(columns));
    for (const v1::RankStatus& member : communicator.members()) {
      std::vector<Cell> cells = {std::to_string(member.rank()),
                                 member.pid() == 0 ? "?" : std::to_string(member.pid()),
                                 is_elsewhere(member) ? "-" : id_text(member.session()),
                                 calls_text(member),
                                 {member.waiting(), Colour::Yellow}};
      if (spans_nodes) cells.insert(cells.begin() + 1, Cell(member.node()));
      table.add(std::move(cells));
    }
    if (!table.empty()) out += table.text(colour);
    if (const std::string launches = launches_text(communicator); !launches.empty())
      out += "  " + printable(launches) + "\n";
    if (communicator.most_sms() != 0)
      out += "  at most " + std::to_string(communicator.most_sms()) + " SMs of each GPU\n";
    if (!communicator.why_not_in_stream().empty())
      out += "  why not more in-stream: " + printable(communicator.why_not_in_stream()) + "\n";
    if (!communicator.why_not_in_call().empty())
      out += "  why nothing in-call: " + printable(communicator.why_not_in_call()) + "\n";
    if (!communicator.why_no_slots().empty())
      out += "  why not stream or copy_engine: " + printable(communicator.why_no_slots()) + "\n";
    if (!communicator.why_no_codecs().empty())
      out += "  why no codecs: " + printable(communicator.why_no_codecs()) + "\n";
    if (!communicator.default_codec_becomes().empty()) {
      out += "  default codec: " + printable(communicator.default_codec()) + ": " +
             printable(communicator.default_codec_becomes()) + "\n";
    }
    const std::string diagnosis = diagnosis_of(communicator);
    if (!diagnosis.empty() && diagnosis != communicator.state()) {
      out += "  " + painted(printable(diagnosis), Colour::Yellow, colour) + "\n";
    }
  }
  return out;
}

Json communicators_json(const v1::CommunicatorsReply& reply) {
  Json all = Json::array();
  for (const v1::CommunicatorStatus& communicator : reply.communicators()) {
    all.push_back({{"id", communicator.id()},
                   {"epoch", communicator.epoch()},
                   {"ranks", communicator.ranks()},
                   {"state", communicator.state()},
                   {"operations_done", communicator.operations_done()},
                   {"operations_failed", communicator.operations_failed()},
                   {"diagnosis", diagnosis_of(communicator)},
                   {"launches", launches_json(communicator)},
                   {"why_not_in_stream", communicator.why_not_in_stream()},
                   {"why_not_in_call", communicator.why_not_in_call()},
                   {"why_no_slots", communicator.why_no_slots()},
                   {"why_no_codecs", communicator.why_no_codecs()},
                   {"most_sms", communicator.most_sms()},
                   {"default_codec", default_codec_text(communicator)},
                   {"default_codec_becomes", communicator.default_codec_becomes()},
                   {"members", members_json(communicator)}});
  }
  return {{"communicators", std::move(all)}};
}

Json diagnosis_json(const v1::CommunicatorsReply& reply) {
  Json all = Json::array();
  for (const v1::CommunicatorStatus& communicator : reply.communicators()) {
    const std::string diagnosis = diagnosis_of(communicator);
    Json one = {
        {"id", communicator.id()}, {"healthy", diagnosis.empty()}, {"diagnosis", diagnosis}};
    // The first of them.
    if (const auto last = lagging_ranks(communicator); !last.empty()) {
      one["lagging"] = {{"rank", last.front()->rank()},
                        {"pid", last.front()->pid()},
                        {"last_seq", last.front()->last_seq()}};
    }
    one["members"] = members_json(communicator);
    all.push_back(std::move(one));
  }
  return {{"communicators", std::move(all)}};
}

}  // namespace arcomm::arctl

#include <algorithm>
#include <vector>

#include "client/arctl/verbs.h"
#include "client/arctl/view/table.h"
#include "client/arctl/view/views.h"

namespace arcomm::arctl {
namespace {

Frame render(const v1::CommunicatorsReply& reply, const Invocation& invocation) {
  Frame frame;
  for (const v1::CommunicatorStatus& communicator : reply.communicators()) {
    const std::string diagnosis = diagnosis_of(communicator);
    if (!diagnosis.empty()) frame.code = ExitCode::Degraded;
    frame.text += painted(printable(communicator.id()), Colour::Bold, invocation.colour) + "  ";
    frame.text += diagnosis.empty()
                      ? painted("healthy", Colour::Green, invocation.colour)
                      : painted(printable(diagnosis), Colour::Yellow, invocation.colour);
    frame.text += "\n";
    if (diagnosis.empty()) continue;
    const std::vector<const v1::RankStatus*> last = lagging_ranks(communicator);
    for (const v1::RankStatus& member : communicator.members()) {
      frame.text += "  rank " + std::to_string(member.rank());
      if (!member.node().empty()) frame.text += "  node " + printable(member.node());
      if (member.pid() != 0) frame.text += "  pid " + std::to_string(member.pid());
      // What a rank of another node has called is that node's to say.
      if (!is_elsewhere(member)) frame.text += "  called " + std::to_string(member.last_seq());
      if (!member.waiting().empty()) frame.text += "  waits for " + printable(member.waiting());
      if (std::ranges::find(last, &member) != last.end())
        frame.text += painted("  <- behind", Colour::Yellow, invocation.colour);
      frame.text += "\n";
    }
  }
  if (reply.communicators_size() == 0) frame.text = "no communicator exists\n";
  if (invocation.json) frame.text = json_line(diagnosis_json(reply));
  return frame;
}

}  // namespace

void add_diagnose(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand("diagnose",
                                      "Names the rank that holds the others up, its process and "
                                      "its last call; exit status 6 if there is one");
  auto prefix = std::make_shared<std::string>();
  verb->add_option("id", *prefix, "Only communicators whose id starts with this");
  add_examples(*verb, {"arctl diagnose"});
  verb->callback([&invocation, prefix] {
    invocation.action = [&invocation, prefix] {
      return show(invocation, [&](Admin& admin) -> Result<Frame> {
        Result<v1::CommunicatorsReply> reply = admin.communicators();
        if (!reply) return std::move(reply).error();
        if (!keep_communicators(*reply, *prefix) && !prefix->empty()) {
          return error(ErrorCode::NotFound, Reason::UnknownHandle,
                       "no communicator's id starts with ", *prefix, ": `arctl comms` lists them");
        }
        return render(*reply, invocation);
      });
    };
  });
}

}  // namespace arcomm::arctl

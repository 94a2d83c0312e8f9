#include "client/arctl/verbs.h"
#include "client/arctl/view/views.h"

namespace arcomm::arctl {

void add_comms(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand(
      "comms",
      "The communicators, their ranks, who waits for whom, and which launch path "
      "operations take and why not a faster one");
  auto prefix = std::make_shared<std::string>();
  verb->add_option("id", *prefix, "Only communicators whose id starts with this");
  add_watch(*verb, invocation);
  add_examples(*verb, {"arctl comms", "arctl comms --watch"});
  verb->callback([&invocation, prefix] {
    invocation.action = [&invocation, prefix] {
      return show(invocation, [&](Admin& admin) -> Result<Frame> {
        Result<v1::CommunicatorsReply> reply = admin.communicators();
        if (!reply) return std::move(reply).error();
        if (!keep_communicators(*reply, *prefix) && !prefix->empty()) {
          return error(ErrorCode::NotFound, Reason::UnknownHandle,
                       "no communicator's id starts with ", *prefix, ": `arctl comms` lists them");
        }
        if (!invocation.json) return Frame{communicators_text(*reply, invocation.colour)};
        return Frame{json_line(communicators_json(*reply))};
      });
    };
  });
}

}  // namespace arcomm::arctl

#include "client/arctl/verbs.h"
#include "client/arctl/view/views.h"

namespace arcomm::arctl {

void add_sessions(CLI::App& app, Invocation& invocation) {
  CLI::App* verb =
      app.add_subcommand("sessions", "The attached client processes and what they hold");
  add_watch(*verb, invocation);
  add_examples(*verb, {"arctl sessions --json"});
  verb->callback([&invocation] {
    invocation.action = [&invocation] {
      return show(invocation, [&](Admin& admin) -> Result<Frame> {
        Result<v1::SessionsReply> reply = admin.sessions();
        if (!reply) return std::move(reply).error();
        if (!invocation.json) return Frame{sessions_text(*reply, invocation.colour)};
        return Frame{json_line(sessions_json(*reply))};
      });
    };
  });
}

}  // namespace arcomm::arctl

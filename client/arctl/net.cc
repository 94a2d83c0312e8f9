#include "client/arctl/verbs.h"
#include "client/arctl/view/views.h"

namespace arcomm::arctl {

void add_net(CLI::App& app, Invocation& invocation) {
  CLI::App* verb =
      app.add_subcommand("net", "Other daemons, the links to them, and the interfaces in use");
  add_watch(*verb, invocation);
  add_examples(*verb, {"arctl net", "arctl net --json", "arctl net --watch"});
  verb->callback([&invocation] {
    invocation.action = [&invocation] {
      return show(invocation, [&](Admin& admin) -> Result<Frame> {
        Result<v1::NetReply> reply = admin.net();
        if (!reply) return std::move(reply).error();
        if (!invocation.json) return Frame{net_text(*reply, invocation.colour)};
        return Frame{json_line(net_json(*reply))};
      });
    };
  });
}

}  // namespace arcomm::arctl

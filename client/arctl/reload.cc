#include "client/arctl/verbs.h"
#include "client/arctl/view/views.h"

namespace arcomm::arctl {

void add_reload(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand(
      "reload", "Makes the daemon read its configuration again; a bad file changes nothing");
  add_examples(*verb, {"arctl reload"});
  verb->callback([&invocation] {
    invocation.action = [&invocation] {
      return show(invocation, [&](Admin& admin) -> Result<Frame> {
        Result<v1::ReloadReply> reply = admin.reload();
        if (!reply) return std::move(reply).error();
        if (!invocation.json) return Frame{reload_text(*reply)};
        return Frame{json_line(reload_json(*reply))};
      });
    };
  });
}

}  // namespace arcomm::arctl

#include "client/arctl/verbs.h"
#include "client/arctl/view/views.h"

namespace arcomm::arctl {

void add_status(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand(
      "status", "State, workers and settings of the daemon; exit status 6 if degraded");
  auto with_settings = std::make_shared<bool>(false);
  verb->add_flag("--settings", *with_settings,
                 "Also print every setting and where its value comes from");
  add_watch(*verb, invocation);
  add_examples(*verb, {"arctl status --watch"});
  verb->callback([&invocation, with_settings] {
    invocation.action = [&invocation, with_settings] {
      return show(invocation, [&](Admin& admin) -> Result<Frame> {
        Result<v1::StatusReply> reply = admin.status();
        if (!reply) return std::move(reply).error();
        Frame frame;
        frame.code = is_ready(*reply) ? ExitCode::Ok : ExitCode::Degraded;
        frame.text = invocation.json ? json_line(status_json(*reply))
                                     : status_text(*reply, *with_settings, invocation.colour);
        return frame;
      });
    };
  });
}

}  // namespace arcomm::arctl

#include "client/arctl/verbs.h"
#include "client/arctl/view/views.h"

namespace arcomm::arctl {

void add_metrics(CLI::App& app, Invocation& invocation) {
  CLI::App* verb =
      app.add_subcommand("metrics", "The daemon's metrics, in Prometheus' text format or as JSON");
  auto prefix = std::make_shared<std::string>();
  verb->add_option("prefix", *prefix, "Only metrics whose name starts with this");
  add_examples(*verb, {"arctl metrics arcomm_operations"});
  verb->callback([&invocation, prefix] {
    invocation.action = [&invocation, prefix] {
      return show(invocation, [&](Admin& admin) -> Result<Frame> {
        Result<v1::MetricsReply> reply = admin.metrics();
        if (!reply) return std::move(reply).error();
        const Json json = metrics_json(reply->text(), *prefix);
        if (json["metrics"].empty() && !prefix->empty()) {
          return error(ErrorCode::NotFound, Reason::UnknownHandle, "no metric's name starts with ",
                       *prefix, ": `arctl metrics` prints them all");
        }
        if (invocation.json) return Frame{json_line(json)};
        return Frame{metrics_text(reply->text(), *prefix)};
      });
    };
  });
}

}  // namespace arcomm::arctl

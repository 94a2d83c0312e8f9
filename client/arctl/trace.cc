#include "client/arctl/verbs.h"
#include "client/arctl/view/views.h"

namespace arcomm::arctl {

void add_trace(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand(
      "trace", "The flight recorder: the last operations and the time of each step");
  auto request = std::make_shared<v1::TraceRequest>();
  verb->add_option_function<std::uint32_t>(
          "--last", [request](std::uint32_t last) { request->set_last(last); },
          "How many operations, the newest; 0 for all that are kept")
      ->default_str("32");
  verb->add_flag_callback(
      "--failed", [request] { request->set_failed_only(true); }, "Only those that failed");
  verb->add_flag_callback(
      "--previous", [request] { request->set_previous(true); },
      "Those of the daemon before this one, as systemd kept them");
  request->set_last(32);
  auto format = std::make_shared<std::string>();
  verb->add_option("--format", *format,
                   "chrome: as trace events that Perfetto and chrome://tracing open")
      ->check(CLI::IsMember({"chrome"}));
  add_examples(*verb,
               {"arctl trace --failed --last 0", "arctl trace --format chrome > trace.json"});
  verb->callback([&invocation, request, format] {
    invocation.action = [&invocation, request, format] {
      return show(invocation, [&](Admin& admin) -> Result<Frame> {
        Result<v1::TraceReply> reply = admin.trace(*request);
        if (!reply) return std::move(reply).error();
        if (!format->empty()) return Frame{json_line(trace_chrome_json(*reply))};
        if (!invocation.json) return Frame{trace_text(*reply, invocation.colour)};
        return Frame{json_line(trace_json(*reply))};
      });
    };
  });
}

}  // namespace arcomm::arctl

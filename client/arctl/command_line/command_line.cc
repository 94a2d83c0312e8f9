#include "client/arctl/verbs.h"
#include "proto/version.h"

namespace arcomm::arctl {

void add_watch(CLI::App& verb, Invocation& invocation) {
  // As text: the parser hands over "" when the option stands alone.
  verb.add_option_function<std::string>(
          "--watch",
          [&invocation](const std::string& text) {
            double seconds = 1;
            if (!text.empty() && (!CLI::detail::lexical_cast(text, seconds) ||
                                  !(seconds >= 0.05 && seconds <= 3600))) {
              throw CLI::ValidationError("--watch", "wants seconds in [0.05, 3600], got " + text);
            }
            invocation.watch_s = seconds;
          },
          "Show it again every SECONDS (1) until Ctrl-C")
      ->expected(0, 1)
      ->type_name("SECONDS");
}

void add_examples(CLI::App& verb, const std::vector<std::string>& lines) {
  std::string text = "For instance:";
  for (const std::string& line : lines) text += "\n  " + line;
  verb.footer(text);
}

void build_command_line(CLI::App& app, Invocation& invocation) {
  app.name("arctl");
  app.description("Looks at and steers arcommd, the node's collective communication daemon.");
  app.fallthrough();  // the options below may stand behind the verb as well
  app.require_subcommand(1);
  app.failure_message(
      [](const CLI::App* top, const CLI::Error& refusal) { return usage_error(*top, refusal); });
  app.set_version_flag("--version", "arctl " + std::to_string(kVersionMajor) + "." +
                                        std::to_string(kVersionMinor) + "." +
                                        std::to_string(kVersionPatch));
  app.add_flag("--json", invocation.json, "Print JSON, for programs");
  app.add_option("--runtime-dir", invocation.runtime_dir,
                 "Where the daemon's sockets are; default $ARCOMM_RUNTIME_DIR, then /run/arcommd")
      ->type_name("DIR");
  app.add_option_function<double>(
         "--timeout", [&invocation](double seconds) { invocation.timeout_s = seconds; },
         "How long the daemon may take to answer; default 10, of an operation in check and bench "
         "30, of all of tune 600")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.001, 86400.0));
#define X(verb) add_##verb(app, invocation);
  ARCTL_VERBS(X)
#undef X
  add_rank(app, invocation);
  app.footer(
      "Exit status: 0 ok, 1 failure, 2 usage, 3 not running, 4 permission, 5 not found, 6 "
      "degraded, 7 timeout.\n"
      "See arctl(1).");
}

}  // namespace arcomm::arctl

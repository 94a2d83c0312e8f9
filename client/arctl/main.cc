#include <unistd.h>

#include "client/arctl/verbs.h"

int main(int argc, char** argv) {
  using arcomm::arctl::ExitCode;
  arcomm::arctl::Invocation invocation;
  invocation.colour = arcomm::arctl::wants_colour(STDOUT_FILENO);
  CLI::App app;
  arcomm::arctl::build_command_line(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& failure) {
    // Help and version go to stdout with 0; everything else is usage, whatever number the parser
    // has for it.
    return app.exit(failure) == 0 ? static_cast<int>(ExitCode::Ok)
                                  : static_cast<int>(ExitCode::Usage);
  }
  return static_cast<int>(invocation.action());
}

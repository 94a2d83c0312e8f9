// One function per verb: it adds the subcommand with its options, and sets invocation.action when
// the verb is chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "client/arctl/command_line/invocation.h"

namespace arcomm::arctl {

// The order is that of `arctl --help`.
#define ARCTL_VERBS(X) \
  X(status)            \
  X(sessions)          \
  X(comms)             \
  X(net)               \
  X(diagnose)          \
  X(metrics)           \
  X(trace)             \
  X(tune)              \
  X(reload)            \
  X(check)             \
  X(bench)             \
  X(completion)

#define X(verb) void add_##verb(CLI::App& app, Invocation& invocation);
ARCTL_VERBS(X)
#undef X
void add_rank(CLI::App& app,
              Invocation& invocation);  // hidden: one rank process of check and bench

// The whole command line.
void build_command_line(CLI::App& app, Invocation& invocation);
void add_watch(CLI::App& verb, Invocation& invocation);
// Command lines at the end of the verb's help, as they are typed.
void add_examples(CLI::App& verb, const std::vector<std::string>& lines);

// What is wrong with a command line that was refused: for words that arctl does not know, with the
// nearest one that it does. Lines, each with its newline.
std::string usage_error(const CLI::App& app, const CLI::Error& refusal);

// bash or zsh code that completes verbs and options of `app`.
std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);

}  // namespace arcomm::arctl

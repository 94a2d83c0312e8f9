#include <algorithm>
#include <vector>

#include "client/arctl/verbs.h"
#include "client/arctl/view/table.h"
#include "proto/nearest_name.h"

namespace arcomm::arctl {
namespace {

constexpr char kWhereToLook[] = "Run with --help for more information.\n";

std::string suggestion(std::string_view word, const std::vector<std::string>& known) {
  const std::optional<std::string> nearest = nearest_name(word, known);
  return nearest ? ": did you mean " + *nearest + "?" : "";
}

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (!verb->get_group().empty()) names.push_back(verb->get_name());
  }
  return names;
}

void append_options(const CLI::App& app, std::vector<std::string>& names) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
}

std::string unknown_option(const std::string& name, const CLI::App& app, const CLI::App* verb) {
  std::vector<std::string> known;
  if (verb != nullptr) append_options(*verb, known);
  const bool is_misplaced = std::find(known.begin(), known.end(), name) != known.end();
  if (is_misplaced) return name + " belongs to " + verb->get_name() + ": put it behind that word";
  append_options(app, known);
  const std::string whose = verb == nullptr ? "arctl" : "arctl " + verb->get_name();
  return whose + " has no option " + printable(name) + suggestion(name, known);
}

}  // namespace

std::string usage_error(const CLI::App& app, const CLI::Error& refusal) {
  // Words that nobody took. The parser says first that a subcommand is missing, even where one is
  // there, misspelt.
  const std::vector<std::string> unknown = app.remaining(true);
  const auto kind = static_cast<CLI::ExitCodes>(refusal.get_exit_code());
  const bool is_about_words =
      kind == CLI::ExitCodes::ExtrasError || kind == CLI::ExitCodes::RequiredError;
  if (unknown.empty() || !is_about_words) return std::string(refusal.what()) + "\n" + kWhereToLook;
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const CLI::App* verb = chosen.empty() ? nullptr : chosen.front();
  const std::string word = unknown.front().substr(0, unknown.front().find('='));
  std::string said;
  if (word.starts_with("-")) {
    said = unknown_option(word, app, verb);
  } else if (verb == nullptr) {
    said = "arctl has no subcommand " + printable(word) + suggestion(word, verbs_of(app));
  } else {
    said = "arctl " + verb->get_name() + " takes no further argument: " + printable(word);
  }
  return said + "\n" + kWhereToLook;
}

}  // namespace arcomm::arctl

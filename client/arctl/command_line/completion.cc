#include "client/arctl/verbs.h"

namespace arcomm::arctl {
namespace {

std::string verbs_of(const CLI::App& app) {
  std::string words;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (verb->get_group().empty()) continue;  // hidden
    if (!words.empty()) words += ' ';
    words += verb->get_name();
  }
  return words;
}

std::string options_of(const CLI::App& app) {
  std::string words;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames())
      words += (words.empty() ? "--" : " --") + name;
    for (const std::string& name : option->get_snames())
      words += (words.empty() ? "-" : " -") + name;
  }
  return words;
}

// A zsh description may not hold a quote, a colon or a bracket unescaped.
std::string zsh_safe(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\'') continue;
    if (c == ':' || c == '[' || c == ']') safe += '\\';
    safe += c;
  }
  return safe;
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::string out =
      "# bash completion for arctl: eval \"$(arctl completion bash)\"\n"
      "_arctl() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} verb= word\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case $word in\n"
      "      -*) ;;\n"
      "      *) verb=$word; break ;;\n"
      "    esac\n"
      "  done\n"
      "  local words\n"
      "  case $verb in\n";
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (verb->get_group().empty()) continue;
    std::string extra = verb->get_name() == "completion" ? " bash zsh" : "";
    out += "    " + verb->get_name() + ") words='" + options_of(*verb) + " " + options_of(app) +
           extra + "' ;;\n";
  }
  out += "    *) words='" + verbs_of(app) + " " + options_of(app) +
         "' ;;\n"
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "}\n"
         "complete -F _arctl arctl\n";
  return out;
}

std::string zsh_completion(const CLI::App& app) {
  std::string out =
      "#compdef arctl\n"
      "# zsh completion for arctl: eval \"$(arctl completion zsh)\"\n"
      "_arctl() {\n"
      "  local -a verbs\n"
      "  verbs=(\n";
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (verb->get_group().empty()) continue;
    out += "    '" + verb->get_name() + ":" + zsh_safe(verb->get_description()) + "'\n";
  }
  out +=
      "  )\n"
      "  local verb=${words[(r)[a-z]*,-1]}\n"
      "  verb=${${words[2,CURRENT-1]:#-*}[1]}\n"
      "  case $verb in\n"
      "    '') _describe verb verbs; compadd -- " +
      options_of(app) + " ;;\n";
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (verb->get_group().empty()) continue;
    const std::string extra = verb->get_name() == "completion" ? " bash zsh" : "";
    out += "    " + verb->get_name() + ") compadd -- " + options_of(*verb) + " " + options_of(app) +
           extra + " ;;\n";
  }
  out +=
      "  esac\n"
      "}\n"
      "compdef _arctl arctl\n";
  return out;
}

void add_completion(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand("completion", "Prints the completion code for a shell");
  auto shell = std::make_shared<std::string>();
  verb->add_option("shell", *shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  add_examples(*verb, {"eval \"$(arctl completion bash)\""});
  verb->callback([&app, &invocation, shell] {
    invocation.action = [&app, shell] {
      return print(*shell == "bash" ? bash_completion(app) : zsh_completion(app));
    };
  });
}

}  // namespace arcomm::arctl

#include <cstdlib>
#include <map>

#include "client/arctl/view/views.h"

namespace arcomm::arctl {
namespace {

std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  return line;
}

std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  return word;
}

std::string_view name_in(std::string_view sample) {
  return sample.substr(0, sample.find_first_of("{ "));
}

// {a="x",b="y"} with \" \\ and \n as escapes, into an object; returns what follows the closing
// brace.
std::string_view take_labels(Json& labels, std::string_view text) {
  if (text.starts_with('{')) {
    text.remove_prefix(1);
    while (!text.empty() && text.front() != '}') {
      const std::size_t equals = text.find("=\"");
      if (equals == std::string_view::npos) break;
      const std::string_view name = text.substr(0, equals);
      text.remove_prefix(equals + 2);
      std::string value;
      while (!text.empty() && text.front() != '"') {
        if (text.front() == '\\' && text.size() > 1) {
          text.remove_prefix(1);
          value += text.front() == 'n' ? '\n' : text.front();
        } else {
          value += text.front();
        }
        text.remove_prefix(1);
      }
      labels[std::string(name)] = value;
      if (!text.empty()) text.remove_prefix(1);
      if (text.starts_with(',')) text.remove_prefix(1);
    }
    if (text.starts_with('}')) text.remove_prefix(1);
  }
  return text;
}

}  // namespace

Json metrics_json(std::string_view exposition, std::string_view prefix) {
  std::map<std::string, std::string, std::less<>> types;
  Json metrics = Json::array();
  while (!exposition.empty()) {
    std::string_view line = take_line(exposition);
    if (line.starts_with("# TYPE ")) {
      line.remove_prefix(7);
      const std::string_view name = take_word(line);
      types[std::string(name)] = take_word(line);
      continue;
    }
    if (line.empty() || line.starts_with('#') || !line.starts_with(prefix)) continue;
    const std::string_view name = name_in(line);
    // A histogram's samples carry a suffix to the name that its type was given for.
    const auto type = types.find(name.substr(0, name.rfind('_')));
    const auto exact = types.find(name);
    Json labels = Json::object();
    std::string_view rest = take_labels(labels, line.substr(name.size()));
    metrics.push_back(
        {{"name", name},
         {"type", exact != types.end()  ? exact->second
                  : type != types.end() ? type->second
                                        : std::string("untyped")},
         {"labels", std::move(labels)},
         {"value", json_number(std::strtod(std::string(take_word(rest)).c_str(), nullptr))}});
  }
  return {{"metrics", std::move(metrics)}};
}

std::string metrics_text(std::string_view exposition, std::string_view prefix) {
  std::string out;
  while (!exposition.empty()) {
    const std::string_view line = take_line(exposition);
    std::string_view subject = line;
    if (line.starts_with("# ")) {  // "# HELP name text" and "# TYPE name type"
      subject.remove_prefix(2);
      take_word(subject);
      subject = take_word(subject);
    }
    if (!line.empty() && subject.starts_with(prefix)) out.append(line).append("\n");
  }
  return out;
}

}  // namespace arcomm::arctl

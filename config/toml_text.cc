#include "config/toml_text.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <tuple>

namespace arcomm {
namespace {

constexpr int kMaxDepth = 8;

std::string_view kind_word(toml::node_type type) {
  switch (type) {
    case toml::node_type::array:
      return "an array";
    case toml::node_type::floating_point:
      return "a number with a fraction";
    case toml::node_type::date:
    case toml::node_type::time:
    case toml::node_type::date_time:
      return "a date or time";
    case toml::node_type::none:
    case toml::node_type::table:
    case toml::node_type::string:
    case toml::node_type::integer:
    case toml::node_type::boolean:
      break;
  }
  return "a value of another type";
}

void collect(const toml::table& table, const std::string& prefix, int depth,
             std::vector<TomlAssignment>& out) {
  for (const auto& [key, node] : table) {
    TomlAssignment assignment;
    assignment.name =
        prefix.empty() ? std::string(key.str()) : prefix + "." + std::string(key.str());
    const toml::source_position at = key.source().begin;
    assignment.line = at.line;
    assignment.column = at.column;
    if (const toml::table* inner = node.as_table()) {
      if (depth < kMaxDepth && !inner->empty()) {
        collect(*inner, assignment.name, depth + 1, out);
        continue;
      }
      if (depth < kMaxDepth) continue;  // an empty section says nothing
      assignment.type_problem = "a table";
    } else if (const auto* text = node.as_string()) {
      assignment.value = text->get();
    } else if (const auto* integer = node.as_integer()) {
      assignment.value = integer->get();
    } else if (const auto* flag = node.as_boolean()) {
      assignment.value = flag->get();
    } else {
      assignment.type_problem = kind_word(node.type());
    }
    out.push_back(std::move(assignment));
  }
}

}  // namespace

Result<std::vector<TomlAssignment>> parse_toml(std::string_view text, std::string_view file_name) {
  if (text.size() > kMaxConfigBytes) {
    return error(ErrorCode::InvalidArgument, Reason::BadConfig, file_name, ": ", text.size(),
                 " bytes, more than the ", kMaxConfigBytes, " that a configuration may have");
  }
  try {
    const toml::table table = toml::parse(text, file_name);
    std::vector<TomlAssignment> assignments;
    collect(table, "", 0, assignments);
    std::sort(assignments.begin(), assignments.end(), [](const auto& a, const auto& b) {
      return std::tie(a.line, a.column) < std::tie(b.line, b.column);
    });
    return assignments;
  } catch (const toml::parse_error& failure) {
    return error(ErrorCode::InvalidArgument, Reason::BadConfig, file_name, ":",
                 failure.source().begin.line, ":", failure.source().begin.column, ": ",
                 failure.description());
  } catch (const std::exception& failure) {
    return error(ErrorCode::InvalidArgument, Reason::BadConfig, file_name, ": ", failure.what());
  }
}

std::string toml_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04X", static_cast<unsigned>(byte));
      out += escape.data();
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace arcomm

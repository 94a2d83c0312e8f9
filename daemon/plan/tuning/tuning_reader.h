// What readers of tuning files share: mistakes by file and line, and keys that are none. Whatever
// derives from it lives no longer than the name. Any thread.
#pragma once

#include <toml++/toml.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "proto/status.h"

namespace arcomm {

class TuningReader {
 protected:
  explicit TuningReader(std::string_view name) : name_(name) {}
  ~TuningReader() = default;

  std::string_view name() const { return name_; }

  Status check_keys(const toml::table& table, std::string_view where,
                    std::initializer_list<std::string_view> allowed) const {
    for (const auto& [key, node] : table) {
      if (std::find(allowed.begin(), allowed.end(), key.str()) != allowed.end()) continue;
      std::string names;
      for (const std::string_view name : allowed) {
        if (!names.empty()) names += ", ";
        names += name;
      }
      return wrong(node, "unknown key '", key.str(), "' in ", where, ": ", names, " are allowed");
    }
    return {};
  }

  template <typename... Parts>
  Error wrong(const toml::node& node, const Parts&... parts) const {
    return error(ErrorCode::InvalidArgument, Reason::BadConfig, name_, ":",
                 node.source().begin.line, ": ", parts...);
  }

 private:
  std::string_view name_;
};

// What `reader.read(table)` gives for a text; that it is no TOML is one more mistake.
template <typename Reader>
auto read_toml(std::string_view toml, std::string_view name, Reader reader)
    -> decltype(reader.read(toml::table())) {
  try {
    return reader.read(toml::parse(toml, name));
  } catch (const toml::parse_error& mistake) {
    return error(ErrorCode::InvalidArgument, Reason::BadConfig, name, ":",
                 mistake.source().begin.line, ": ", mistake.description());
  }
}

}  // namespace arcomm

// Puts the sources over each other: default, file, environment, flag.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>

#include "config/settings.h"
#include "config/settings_table.h"
#include "config/toml_text.h"
#include "proto/unique_fd.h"

extern char** environ;

namespace arcomm {
namespace {

constexpr std::string_view kDefaultPath = "/etc/arcommd/arcommd.toml";
constexpr std::string_view kPrefix = "ARCOMM_";
// Read by arcommd or libarclient, and no setting of the table.
constexpr std::array<std::string_view, 6> kReservedVariables{
    "ARCOMM_CONFIG",        "ARCOMM_DEVICE", "ARCOMM_FAILPOINT",
    "ARCOMM_IN_CALL_BYTES", "ARCOMM_POST",   "ARCOMM_TRIGGER"};
// The name by which support asks for it, whatever the file says.
constexpr std::string_view kNoResident = "ARCOMM_NO_RESIDENT";
constexpr std::size_t kMostMistakes = 20;

std::string did_you_mean(std::string_view name) {
  const std::optional<std::string> nearest = nearest_setting(name);
  return nearest ? "; did you mean \"" + *nearest + "\"?" : "";
}

class Loading {
 public:
  Loading() { loaded_.sources.resize(settings_table().size(), SettingSource::Default); }

  void add_file(const std::vector<TomlAssignment>& assignments, std::string_view file) {
    loaded_.path = file;
    for (const TomlAssignment& assignment : assignments) {
      const std::string where = std::string(file) + ":" + std::to_string(assignment.line) + ":" +
                                std::to_string(assignment.column) + ": ";
      const SettingRow* row = find_setting(assignment.name);
      if (row == nullptr) {
        complain(where + unknown_name(assignment.name));
      } else if (!assignment.type_problem.empty()) {
        complain(where + row->name() + ": expected " + allowed_text(*row) + ", got " +
                 assignment.type_problem);
      } else if (auto wrong = apply_setting(*row, assignment.value, loaded_.settings)) {
        complain(where + row->name() + ": " + *wrong);
      } else {
        note(*row, SettingSource::File, where);
      }
    }
  }

  void add_environment(const std::vector<std::string>& environment) {
    for (const std::string& entry : environment) {
      const std::string_view view = entry;
      const std::size_t equals = view.find('=');
      if (!view.starts_with(kPrefix) || equals == std::string_view::npos) continue;
      const std::string_view variable = view.substr(0, equals);
      if (std::find(kReservedVariables.begin(), kReservedVariables.end(), variable) !=
          kReservedVariables.end())
        continue;
      if (variable == kNoResident) {
        const std::string_view value = view.substr(equals + 1);
        if (value.empty() || value == "0") continue;
        no_resident_ = true;
        continue;
      }
      const SettingRow* row = find_variable(variable);
      if (row == nullptr) {
        loaded_.warnings.push_back(unknown_variable(variable));
      } else if (auto wrong = apply_setting_text(*row, view.substr(equals + 1), loaded_.settings)) {
        complain("environment: " + std::string(variable) + " (" + row->name() + "): " + *wrong);
      } else {
        note(*row, SettingSource::Environment, "environment: " + std::string(variable) + ": ");
      }
    }
  }

  void add_flags(const std::vector<std::string>& flags) {
    for (const std::string& flag : flags) {
      const std::string_view view = flag;
      const std::size_t equals = view.find('=');
      if (equals == std::string_view::npos) {
        complain("flag: " + toml_quoted(view) + ": expected <section>.<key>=<value>");
        continue;
      }
      const SettingRow* row = find_setting(view.substr(0, equals));
      if (row == nullptr) {
        complain("flag: " + unknown_name(view.substr(0, equals)));
      } else if (auto wrong = apply_setting_text(*row, view.substr(equals + 1), loaded_.settings)) {
        complain("flag: " + row->name() + ": " + *wrong);
      } else {
        note(*row, SettingSource::Flag, "flag: ");
      }
    }
  }

  Result<Loaded> finish() && {
    if (no_resident_) {
      loaded_.settings.gpu.resident = false;
      note(*find_setting("gpu.resident"), SettingSource::Environment,
           "environment: " + std::string(kNoResident) + ": ");
    }
    if (mistakes_.empty()) {
      if (const auto conflict = find_conflict(loaded_.settings))
        complain(places_[conflict->name] + conflict->message);
    }
    if (mistakes_.empty()) return std::move(loaded_);
    std::string all;
    for (std::size_t i = 0; i < mistakes_.size() && i < kMostMistakes; ++i)
      all += (i == 0 ? "" : "\n") + mistakes_[i];
    if (mistakes_.size() > kMostMistakes)
      all += "\nand " + std::to_string(mistakes_.size() - kMostMistakes) + " more";
    return Error{ErrorCode::InvalidArgument, Reason::BadConfig, std::move(all), kNoCulprit};
  }

 private:
  static constexpr int kNoCulprit = -1;

  static std::string unknown_name(std::string_view name) {
    const std::string prefix = std::string(name) + ".";
    for (const SettingRow& row : settings_table())
      if (row.name().starts_with(prefix))
        return "\"" + std::string(name) + "\" is a section, not a setting: write [" +
               std::string(name) + "] and its keys below";
    return "unknown setting " + toml_quoted(name) + did_you_mean(name);
  }

  static const SettingRow* find_variable(std::string_view variable) {
    for (const SettingRow& row : settings_table())
      if (row.variable() == variable) return &row;
    return nullptr;
  }

  static std::string unknown_variable(std::string_view variable) {
    std::string name(variable.substr(kPrefix.size()));
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    std::string text = "environment: " + std::string(variable) + " is no setting and was ignored";
    if (const auto nearest = nearest_setting(name))
      text += "; did you mean " + find_setting(*nearest)->variable() + "?";
    return text;
  }

  void complain(std::string mistake) { mistakes_.push_back(std::move(mistake)); }
  void note(const SettingRow& row, SettingSource source, std::string place) {
    loaded_.sources[static_cast<std::size_t>(&row - settings_table().data())] = source;
    places_[row.name()] = std::move(place);
  }

  Loaded loaded_;
  std::map<std::string, std::string> places_;  // where each setting was last set
  std::vector<std::string> mistakes_;
  bool no_resident_ = false;  // over every other source
};

Result<Loaded> settle(Loading loading, const LoadRequest& request) {
  loading.add_environment(request.environment);
  loading.add_flags(request.flags);
  return std::move(loading).finish();
}

Error cannot_read(const std::string& path, int failure) {
  const bool is_refused = failure == EACCES || failure == EPERM;
  const bool is_missing = failure == ENOENT || failure == ENOTDIR;
  const ErrorCode code = is_missing   ? ErrorCode::NotFound
                         : is_refused ? ErrorCode::PermissionDenied
                                      : ErrorCode::Unavailable;  // it may go better later
  return error(code, Reason::BadConfig, path,
               ": cannot read the configuration: ", std::strerror(failure));
}

Result<std::string> read_config(const std::string& path) {
  // Non-blocking: a FIFO in the file's place must not hold the daemon.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return cannot_read(path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return cannot_read(path, errno);
  if (!S_ISREG(status.st_mode)) {
    return error(ErrorCode::InvalidArgument, Reason::BadConfig, path,
                 ": is not a regular file: name a TOML file");
  }
  std::string text;
  std::array<char, 16'384> piece;
  while (text.size() <=
         kMaxConfigBytes) {  // one piece beyond it, so that the parser says what is wrong
    const ssize_t got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannot_read(path, errno);
    if (got == 0) break;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace

Result<Loaded> parse_settings(std::string_view toml, std::string_view name,
                              const LoadRequest& request) {
  auto assignments = parse_toml(toml, name);
  if (!assignments) return std::move(assignments).error();
  Loading loading;
  loading.add_file(*assignments, name);
  return settle(std::move(loading), request);
}

Result<Loaded> load_settings(const LoadRequest& request) {
  if (request.path.empty()) return settle(Loading{}, request);
  auto text = read_config(request.path);
  if (!text) {
    const bool may_be_missing =
        text.error().code == ErrorCode::NotFound && !request.path_must_exist;
    if (may_be_missing) return settle(Loading{}, request);
    return std::move(text).error();
  }
  return parse_settings(*text, request.path, request);
}

std::vector<std::string> process_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    entries.emplace_back(*entry);
  return entries;
}

LoadRequest load_request(std::string config_flag, std::vector<std::string> set_flags) {
  LoadRequest request{.path = std::move(config_flag),
                      .path_must_exist = true,
                      .environment = process_environment(),
                      .flags = std::move(set_flags)};
  constexpr std::string_view kConfigVariable = "ARCOMM_CONFIG=";
  for (const std::string& entry : request.environment) {
    if (!request.path.empty()) break;
    if (entry.starts_with(kConfigVariable)) request.path = entry.substr(kConfigVariable.size());
  }
  if (request.path.empty()) {
    request.path = kDefaultPath;
    request.path_must_exist = false;
  }
  return request;
}

}  // namespace arcomm

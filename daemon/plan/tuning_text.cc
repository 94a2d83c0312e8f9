// Tuning tables as TOML: what `arctl tune` saves and the daemon loads.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "daemon/plan/tuning_table.h"
#include "proto/unique_fd.h"

namespace arcomm {
namespace {

constexpr std::size_t kMaxPoints = 65'536;
constexpr std::int64_t kFormat = 1;

std::optional<TypeClass> class_named(std::string_view name) {
  for (const TypeClass type_class : {TypeClass::Plain, TypeClass::Half}) {
    if (text_of(type_class) == name) return type_class;
  }
  return std::nullopt;
}

std::string known_algorithms() {
  std::string names;
  for (const AlgorithmEntry& entry : catalog()) {
    if (!names.empty()) names += ", ";
    names += entry.name;
  }
  return names;
}

class Reader {
 public:
  explicit Reader(std::string_view name) : name_(name) {}

  Result<TuningTable> read(const toml::table& root) {
    TuningTable table;
    table.source = std::string(name_);
    for (const auto& [key, node] : root) {
      const std::string_view text = key.str();
      if (text != "format" && text != "machine" && text != "point") {
        return wrong(node, "unknown key '", text, "': format, machine and [[point]] are allowed");
      }
    }
    const std::optional<std::int64_t> format = root["format"].value<std::int64_t>();
    if (format != kFormat) {
      return wrong(root, "format must be ", kFormat,
                   ": the file is of another version; run `arctl tune` anew");
    }
    table.machine = root["machine"].value_or(std::string());
    const toml::node_view<const toml::node> points = root["point"];
    if (points && !points.is_array())
      return wrong(*points.node(), "point must be a list: [[point]]");
    if (const toml::array* list = points.as_array()) {
      if (list->size() > kMaxPoints) return wrong(*list, "more than ", kMaxPoints, " points");
      for (const toml::node& node : *list) {
        Result<TuningPoint> point = read_point(node);
        if (!point) return std::move(point).error();
        table.points.push_back(*point);
      }
    }
    table.settle();
    return table;
  }

 private:
  Result<TuningPoint> read_point(const toml::node& node) {
    const toml::table* entry = node.as_table();
    if (entry == nullptr) return wrong(node, "a point must be a table: [[point]]");
    TuningPoint point;
    for (const auto& [key, value] : *entry) {
      const std::string_view text = key.str();
      const bool known = text == "ranks" || text == "bytes" || text == "class" ||
                         text == "algorithm" || text == "tile_bytes" || text == "microseconds";
      if (!known) return wrong(value, "unknown key '", text, "' in a point");
    }
    const toml::table& fields = *entry;
    const std::int64_t ranks = fields["ranks"].value<std::int64_t>().value_or(0);
    if (ranks < 1 || ranks > kMaxRanks) return wrong(node, "ranks must be 1 to ", kMaxRanks);
    const std::int64_t bytes = fields["bytes"].value<std::int64_t>().value_or(-1);
    if (bytes < 0) return wrong(node, "bytes must be a whole number, 0 or more");
    const std::int64_t tile = fields["tile_bytes"].value<std::int64_t>().value_or(0);
    if (tile < 0 || tile > kMaxTileBytes)
      return wrong(node, "tile_bytes must be 0 to ", kMaxTileBytes);
    const std::string algorithm = fields["algorithm"].value_or(std::string());
    const std::optional<Algorithm> named = algorithm_named(algorithm);
    if (!named)
      return wrong(node, "algorithm '", algorithm, "' is unknown; there are ", known_algorithms());
    const std::string type_class = fields["class"].value_or(std::string("plain"));
    const std::optional<TypeClass> of_class = class_named(type_class);
    if (!of_class) return wrong(node, "class '", type_class, "' is unknown; there are plain, half");
    const double microseconds = fields["microseconds"].value<double>().value_or(-1);
    if (!std::isfinite(microseconds) || microseconds <= 0)
      return wrong(node, "microseconds must be above 0");
    point.ranks = static_cast<std::uint32_t>(ranks);
    point.bytes = static_cast<std::uint64_t>(bytes);
    point.type_class = *of_class;
    point.algorithm = *named;
    point.tile_bytes = static_cast<std::uint32_t>(tile);
    point.microseconds = microseconds;
    return point;
  }

  template <typename... Parts>
  Error wrong(const toml::node& node, const Parts&... parts) const {
    return error(ErrorCode::InvalidArgument, Reason::BadConfig, name_, ":",
                 node.source().begin.line, ": ", parts...);
  }

  std::string_view name_;
};

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

Error cannot(const char* what, const std::string& path) {
  const int number = errno;
  const ErrorCode code = number == ENOENT                      ? ErrorCode::NotFound
                         : number == EACCES || number == EPERM ? ErrorCode::PermissionDenied
                                                               : ErrorCode::Unavailable;
  return error(code, Reason::BadConfig, "cannot ", what, " the tuning table ", path, ": ",
               std::strerror(number));
}

}  // namespace

Result<TuningTable> parse_tuning(std::string_view toml, std::string_view name) {
  try {
    return Reader(name).read(toml::parse(toml, name));
  } catch (const toml::parse_error& mistake) {
    return error(ErrorCode::InvalidArgument, Reason::BadConfig, name, ":",
                 mistake.source().begin.line, ": ", mistake.description());
  }
}

Result<TuningTable> load_tuning(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  if (!file) return cannot("read", path);
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return cannot("read", path);
  return parse_tuning(text.str(), path);
}

std::string print_tuning(const TuningTable& table) {
  std::string text = fmt::format(
      "# What `arctl tune` measured: microseconds of one AllReduce, by ranks, bytes per rank and "
      "class of types\n"
      "# (half: float16 and bfloat16; plain: the others). The daemon takes the fastest at the "
      "nearest size.\n"
      "format = {}\nmachine = {}\n",
      kFormat, quoted(table.machine));
  for (const TuningPoint& point : table.points) {
    text +=
        fmt::format("\n[[point]]\nranks = {}\nbytes = {}\nclass = \"{}\"\nalgorithm = \"{}\"\n",
                    point.ranks, point.bytes, text_of(point.type_class), name_of(point.algorithm));
    if (point.tile_bytes != 0) text += fmt::format("tile_bytes = {}\n", point.tile_bytes);
    text += fmt::format("microseconds = {:.17g}\n", point.microseconds);
    if (text.back() == '\n' && std::floor(point.microseconds) == point.microseconds) {
      text.insert(text.size() - 1, ".0");  // TOML tells 3 from 3.0
    }
  }
  return text;
}

Status save_tuning(const TuningTable& table, const std::string& path) {
  const std::string text = print_tuning(table);
  const std::string beside = path + ".new";
  {
    UniqueFd file(
        ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!file) return cannot("write", beside);
    for (std::size_t written = 0; written < text.size();) {
      const ssize_t n = ::write(file.get(), text.data() + written, text.size() - written);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return cannot("write", beside);
      written += static_cast<std::size_t>(n);
    }
    if (::fsync(file.get()) != 0) return cannot("write", beside);
  }
  if (::rename(beside.c_str(), path.c_str()) != 0) return cannot("rename", path);
  return {};
}

}  // namespace arcomm

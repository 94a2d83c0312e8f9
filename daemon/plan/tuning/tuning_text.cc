// Tuning tables as TOML: what `arctl tune` saves and the daemon loads.
#include <fmt/format.h>
#include <toml++/toml.h>

#include <cmath>
#include <optional>

#include "daemon/plan/gpu_paths.h"
#include "daemon/plan/tuning/tuning_file.h"
#include "daemon/plan/tuning/tuning_reader.h"
#include "daemon/plan/tuning/tuning_table.h"

namespace arcomm {
namespace {

constexpr std::size_t kMaxPoints = 65'536;
constexpr std::int64_t kFormat = 1;

std::string known_algorithms() {
  std::string names;
  for (const AlgorithmEntry& entry : catalog()) {
    if (!names.empty()) names += ", ";
    names += entry.name;
  }
  return names;
}

class Reader : private TuningReader {
 public:
  explicit Reader(std::string_view name) : TuningReader(name) {}

  Result<TuningTable> read(const toml::table& root) {
    TuningTable table;
    table.source = std::string(name());
    ARC_RETURN_IF_ERROR(
        check_keys(root, "the file", {"format", "machine", "point", "in_call", "gpu"}));
    const std::optional<std::int64_t> format = root["format"].value<std::int64_t>();
    if (format != kFormat) {
      return wrong(root, "format must be ", kFormat,
                   ": the file is of another version; run `arctl tune` anew");
    }
    table.machine = root["machine"].value_or(std::string());
    ARC_RETURN_IF_ERROR(read_points(root, "point", "[[point]]", table.points));
    ARC_RETURN_IF_ERROR(read_points(root, "in_call", "[[in_call]]", table.in_call.points));
    table.settle();
    table.in_call.settle();
    const toml::node* gpu = root.get("gpu");
    if (gpu == nullptr) return table;
    if (!gpu->is_table()) return wrong(*gpu, "gpu must be a table: [[gpu.point]]");
    ARC_RETURN_IF_ERROR(read_gpu(*gpu->as_table(), table.gpu));
    return table;
  }

 private:
  Status read_gpu(const toml::table& gpu, GpuTuningTable& table) {
    ARC_RETURN_IF_ERROR(check_keys(gpu, "gpu", {"machine", "point"}));
    ARC_RETURN_IF_ERROR(read_points(gpu, "point", "[[gpu.point]]", table.points));
    if (table.points.empty()) return {};
    table.source = std::string(name());
    table.machine = gpu["machine"].value_or(std::string());
    table.settle();
    return {};
  }

  template <typename Point>
  Status read_points(const toml::table& parent, std::string_view key, std::string_view spelling,
                     std::vector<Point>& points) {
    const toml::node* node = parent.get(key);
    if (node == nullptr) return {};
    if (!node->is_array()) return wrong(*node, key, " must be a list: ", spelling);
    const toml::array& list = *node->as_array();
    if (list.size() > kMaxPoints) return wrong(list, "more than ", kMaxPoints, " points");
    for (const toml::node& entry : list) {
      if (!entry.is_table()) return wrong(entry, "a point must be a table: ", spelling);
      Point point;
      ARC_RETURN_IF_ERROR(read(*entry.as_table(), point));
      points.push_back(point);
    }
    return {};
  }

  Status read(const toml::table& fields, TuningPoint& point) {
    ARC_RETURN_IF_ERROR(check_keys(fields, "a point",
                                   {"collective", "codec", "ranks", "bytes", "class", "algorithm",
                                    "tile_bytes", "microseconds"}));
    ARC_RETURN_IF_ERROR(read_measurement(fields, kMaxRanks, point));
    const std::int64_t tile = fields["tile_bytes"].value<std::int64_t>().value_or(0);
    if (tile < 0 || tile > kMaxTileBytes)
      return wrong(fields, "tile_bytes must be 0 to ", kMaxTileBytes);
    const std::string algorithm = fields["algorithm"].value_or(std::string());
    const std::optional<Algorithm> named = algorithm_named(algorithm);
    if (!named) {
      return wrong(fields, "algorithm '", algorithm, "' is unknown; there are ",
                   known_algorithms());
    }
    ARC_RETURN_IF_ERROR(read_class(fields, point.type_class));
    point.algorithm = *named;
    point.tile_bytes = static_cast<std::uint32_t>(tile);
    return {};
  }

  Status read(const toml::table& fields, InCallPoint& point) {
    ARC_RETURN_IF_ERROR(
        check_keys(fields, "a point of [[in_call]]",
                   {"ranks", "bytes", "class", "microseconds", "by_worker_microseconds"}));
    ARC_RETURN_IF_ERROR(read_shape(fields, kMaxInCallRanks, point));
    if (point.bytes > kMaxInCallBytes)
      return wrong(fields, "bytes must be at most ", kMaxInCallBytes, ": calls meet for no more");
    ARC_RETURN_IF_ERROR(read_class(fields, point.type_class));
    return read_time(fields, "by_worker_microseconds", point.by_worker_microseconds);
  }

  Status read_class(const toml::table& fields, TypeClass& type_class) {
    const std::string name = fields["class"].value_or(std::string("plain"));
    const std::optional<TypeClass> named = class_named(name);
    if (!named) return wrong(fields, "class '", name, "' is unknown; there are plain, half");
    type_class = *named;
    return {};
  }

  Status read(const toml::table& fields, GpuTuningPoint& point) {
    ARC_RETURN_IF_ERROR(check_keys(
        fields, "a point", {"collective", "codec", "ranks", "bytes", "algorithm", "microseconds"}));
    ARC_RETURN_IF_ERROR(read_measurement(fields, kMaxGpuRanks, point));
    const std::string algorithm = fields["algorithm"].value_or(std::string());
    point.algorithm = cuda_algorithm_named(algorithm);
    if (!point.algorithm && algorithm != kInStreamName) {
      return wrong(fields, "algorithm '", algorithm, "' is unknown; there are ",
                   known_cuda_algorithms(), ", ", kInStreamName);
    }
    return {};
  }

  // What every point of an algorithm has.
  template <typename Point>
  Status read_measurement(const toml::table& fields, std::int64_t max_ranks, Point& point) {
    ARC_RETURN_IF_ERROR(read_shape(fields, max_ranks, point));
    ARC_RETURN_IF_ERROR(read_named(fields, "collective", kCollectives, point.key.collective));
    return read_named(fields, "codec", kCodecs, point.key.codec);
  }

  // What every point has.
  template <typename Point>
  Status read_shape(const toml::table& fields, std::int64_t max_ranks, Point& point) {
    const std::int64_t ranks = fields["ranks"].value<std::int64_t>().value_or(0);
    if (ranks < 1 || ranks > max_ranks) return wrong(fields, "ranks must be 1 to ", max_ranks);
    const std::int64_t bytes = fields["bytes"].value<std::int64_t>().value_or(-1);
    if (bytes < 0) return wrong(fields, "bytes must be a whole number, 0 or more");
    point.ranks = static_cast<std::uint32_t>(ranks);
    point.bytes = static_cast<std::uint64_t>(bytes);
    return read_time(fields, "microseconds", point.microseconds);
  }

  Status read_time(const toml::table& fields, std::string_view key, double& microseconds) {
    microseconds = fields[key].value<double>().value_or(-1);
    if (std::isfinite(microseconds) && microseconds > 0) return {};
    return wrong(fields, key, " must be above 0");
  }

  // What no point of the first tables said; it is the default where it is missing.
  template <typename Named>
  Status read_named(const toml::table& fields, std::string_view key, unsigned count, Named& value) {
    const toml::node* node = fields.get(key);
    if (node == nullptr) return {};
    const std::string name = node->value<std::string>().value_or("");
    std::string known;
    for (unsigned i = 0; i < count; ++i) {
      value = static_cast<Named>(i);
      if (text_of(value) == name) return {};
      known += (i == 0 ? "" : ", ") + std::string(text_of(value));
    }
    return wrong(*node, key, " '", name, "' is unknown; there are ", known);
  }
};

// Only what older versions did not know.
std::string key_lines(const TuningKey& key) {
  std::string lines;
  if (key.collective != TuningKey{}.collective)
    lines += fmt::format("collective = \"{}\"\n", text_of(key.collective));
  if (key.codec != TuningKey{}.codec) lines += fmt::format("codec = \"{}\"\n", text_of(key.codec));
  return lines;
}

std::string time_line(double microseconds, std::string_view key = "microseconds") {
  const bool whole = std::floor(microseconds) == microseconds;  // TOML tells 3 from 3.0
  return fmt::format("{} = {:.17g}{}\n", key, microseconds, whole ? ".0" : "");
}

}  // namespace

Result<TuningTable> parse_tuning(std::string_view toml, std::string_view name) {
  return read_toml(toml, name, Reader(name));
}

Result<TuningTable> load_tuning(const std::string& path) {
  const Result<std::string> text = read_tuning_file(path);
  if (!text) return text.error();
  return parse_tuning(*text, path);
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
    text += key_lines(point.key);
    if (point.tile_bytes != 0) text += fmt::format("tile_bytes = {}\n", point.tile_bytes);
    text += time_line(point.microseconds);
  }
  if (!table.in_call.points.empty()) {
    text +=
        "\n# Operations within the ranks' calls, and the same by the worker: up to the size at "
        "which "
        "it is faster\n# they run in calls (host.in_call_bytes = \"auto\").\n";
  }
  for (const InCallPoint& point : table.in_call.points) {
    text += fmt::format("\n[[in_call]]\nranks = {}\nbytes = {}\nclass = \"{}\"\n", point.ranks,
                        point.bytes, text_of(point.type_class));
    text += time_line(point.microseconds);
    text += time_line(point.by_worker_microseconds, "by_worker_microseconds");
  }
  if (table.gpu.points.empty()) return text;
  text += fmt::format(
      "\n# Between GPUs: kernels that the daemon launches; in_stream: what clients "
      "launch.\n[gpu]\nmachine = {}\n",
      quoted(table.gpu.machine));
  for (const GpuTuningPoint& point : table.gpu.points) {
    text += fmt::format("\n[[gpu.point]]\nranks = {}\nbytes = {}\nalgorithm = \"{}\"\n",
                        point.ranks, point.bytes, name_of(point.algorithm));
    text += key_lines(point.key);
    text += time_line(point.microseconds);
  }
  return text;
}

Status save_tuning(const TuningTable& table, const std::string& path) {
  return write_tuning_file(print_tuning(table), path);
}

}  // namespace arcomm

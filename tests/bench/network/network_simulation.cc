// How long an AllReduce takes between 2 to 1,024 nodes by the alpha-beta model (network_model.h):
// for each number of nodes and size, every algorithm's time, which one the daemon chooses and what
// that costs beside the best; and at which sizes one overtakes the other. No sockets, no clock.
// Prints text, and JSON lines with --json.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/net/frame.h"
#include "tests/bench/network/network_model.h"

namespace arcomm::bench {
namespace {

constexpr char kUsage[] =
    "usage: network_simulation [options]\n"
    "  --like loopback|10g|25g|100g  a network's latency and rate (25g)\n"
    "  --latency-us X  --gigabytes X  --message-us X  --combine-gigabytes X\n"
    "  --window-kib X     under way between two nodes at most (1024)\n"
    "  --nodes A,B,...    (2,3,4,8,16,17,32,64,128,256,1024)\n"
    "  --dtype float32|bfloat16\n"
    "  --seats N          ranks on each node (1)\n"
    "  --order rank|ring  net.order, which decides what may be chosen (rank)\n"
    "  --together         everybody sends to node 0 first: what staggering is worth\n"
    "  --json             JSON lines\n";

struct Options {
  NetworkCosts costs;
  std::vector<std::uint32_t> nodes{2, 3, 4, 8, 16, 17, 32, 64, 128, 256, 1024};
  DType dtype = DType::Float32;
  std::uint32_t seats = 1;
  NetOrder order = NetOrder::OfRanks;
  bool json = false;
};

struct Like {
  std::string_view name;
  double latency_us, gigabytes;
};
constexpr Like kLikes[] = {
    {"loopback", 4, 10}, {"10g", 25, 1.15}, {"25g", 15, 2.9}, {"100g", 10, 11}};

std::optional<Options> parse(int argc, char** argv) {
  Options options;
  options.costs.gigabytes = 2.9;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--json") {
      options.json = true;
      continue;
    }
    if (flag == "--together") {
      options.costs.staggered = false;
      continue;
    }
    if (i + 1 == argc) return std::nullopt;
    const char* const value = argv[++i];
    if (flag == "--like") {
      const Like* found = nullptr;
      for (const Like& like : kLikes) {
        if (like.name == value) found = &like;
      }
      if (found == nullptr) return std::nullopt;
      options.costs.latency_us = found->latency_us;
      options.costs.gigabytes = found->gigabytes;
    } else if (flag == "--latency-us") {
      options.costs.latency_us = std::atof(value);
    } else if (flag == "--gigabytes") {
      options.costs.gigabytes = std::atof(value);
    } else if (flag == "--message-us") {
      options.costs.message_us = std::atof(value);
    } else if (flag == "--combine-gigabytes") {
      options.costs.combine_gigabytes = std::atof(value);
    } else if (flag == "--window-kib") {
      options.costs.window_bytes = std::strtoull(value, nullptr, 10) << 10;
    } else if (flag == "--seats") {
      options.seats = static_cast<std::uint32_t>(std::strtoul(value, nullptr, 10));
    } else if (flag == "--dtype") {
      options.dtype = std::strcmp(value, "bfloat16") == 0 ? DType::BFloat16 : DType::Float32;
    } else if (flag == "--order") {
      options.order = std::strcmp(value, "ring") == 0 ? NetOrder::OfRing : NetOrder::OfRanks;
    } else if (flag == "--nodes") {
      options.nodes.clear();
      for (const char* rest = value; *rest != '\0';) {
        char* end = nullptr;
        options.nodes.push_back(static_cast<std::uint32_t>(std::strtoul(rest, &end, 10)));
        if (end == rest || options.nodes.back() < 2) return std::nullopt;
        rest = *end == ',' ? end + 1 : end;
      }
    } else {
      return std::nullopt;
    }
  }
  const NetworkCosts& costs = options.costs;
  if (!(costs.gigabytes > 0 && costs.combine_gigabytes > 0 && costs.window_bytes > 0 &&
        costs.latency_us >= 0 && options.seats > 0))
    return std::nullopt;
  return options;
}

// One number of nodes and one size.
struct Row {
  std::uint64_t bytes = 0;
  double exchange = 0, direct = 0, ring = 0, both = 0, floor = 0, chosen = 0;
  NetworkChoice choice;
  RingShape shape;

  double best_ring() const { return ring < both ? ring : both; }
  double best() const {
    const double other = exchange < direct ? exchange : direct;
    return other < best_ring() ? other : best_ring();
  }
};

Row row_of(const Options& options, std::uint32_t nodes, std::uint64_t bytes) {
  const NetworkQuestion question{.count = bytes / size_of(options.dtype),
                                 .dtype = options.dtype,
                                 .nodes = nodes,
                                 .one_seat_each = options.seats == 1};
  NetworkPolicy policy{.order = NetOrder::OfRing};
  const auto forced = [&](NetAlgorithm algorithm) {
    policy.algorithm = algorithm;
    return choose_network(question, policy);
  };
  Row row;
  row.bytes = bytes;
  const NetworkChoice ring = forced(NetAlgorithm::Ring);
  row.shape = ring_shape(question.count * size_of(ring.partials), nodes,
                         {.element_bytes = size_of(ring.partials),
                          .most_chunk_bytes = net::kMostChunkBytes,
                          .staging_bytes = options.costs.window_bytes},
                         policy.ring);
  const auto time = [&](const NetworkChoice& choice, bool both = false) {
    RingShape shape = row.shape;
    shape.bidirectional = both;
    return simulate(question, choice, shape, options.costs);
  };
  row.exchange = time(forced(NetAlgorithm::Exchange));
  row.direct = time(forced(NetAlgorithm::Direct));
  row.ring = time(ring);
  row.both = time(ring, true);
  row.floor = floor_us(question, options.costs);
  policy.algorithm = NetAlgorithm::Auto;
  policy.order = options.order;
  row.choice = choose_network(question, policy);
  row.chosen = time(row.choice, row.shape.bidirectional);
  return row;
}

std::string size_text(std::uint64_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MB";
  if (bytes >= 1 << 10) return std::to_string(bytes >> 10) + " KB";
  return std::to_string(bytes) + " B";
}

// The size from which `later` stays faster than `earlier`, by a hundredth at least, up to the
// largest.
template <typename Earlier, typename Later>
std::string crossover(const std::vector<Row>& rows, Earlier earlier, Later later) {
  const Row* from = nullptr;
  for (auto row = rows.rbegin(); row != rows.rend() && later(*row) < 0.99 * earlier(*row); ++row)
    from = &*row;
  return from == nullptr ? "never" : "from " + size_text(from->bytes);
}

void print(const std::vector<Row>& rows, std::uint32_t nodes) {
  std::printf(
      "\n%u nodes%24s exchange       direct         ring    both ways  chosen    of the best  of "
      "the floor\n",
      nodes, "us:");
  for (const Row& row : rows) {
    std::printf("%10s %25.1f %12.1f %12.1f %12.1f  %-9s %10.2f %13.2f\n",
                size_text(row.bytes).c_str(), row.exchange, row.direct, row.ring, row.both,
                std::string(text_of(row.choice.algorithm)).c_str(), row.chosen / row.best(),
                row.chosen / row.floor);
  }
  const auto exchange = [](const Row& row) { return row.exchange; };
  const auto direct = [](const Row& row) { return row.direct; };
  const auto ring = [](const Row& row) { return row.best_ring(); };
  std::printf("  direct beats exchange %s; ring beats exchange %s; ring beats direct %s\n",
              crossover(rows, exchange, direct).c_str(), crossover(rows, exchange, ring).c_str(),
              crossover(rows, direct, ring).c_str());
}

void print_json(const std::vector<Row>& rows, std::uint32_t nodes) {
  for (const Row& row : rows) {
    std::printf(
        "{\"nodes\":%u,\"bytes\":%llu,\"exchange_us\":%.2f,\"direct_us\":%.2f,\"ring_us\":%.2f,"
        "\"ring_both_ways_us\":%.2f,\"floor_us\":%.2f,\"chosen\":\"%s\",\"chosen_us\":%.2f,"
        "\"ring_chunk_bytes\":%llu,\"ring_slots\":%llu}\n",
        nodes, static_cast<unsigned long long>(row.bytes), row.exchange, row.direct, row.ring,
        row.both, row.floor, std::string(text_of(row.choice.algorithm)).c_str(), row.chosen,
        static_cast<unsigned long long>(row.shape.chunk_bytes),
        static_cast<unsigned long long>(row.shape.slots));
  }
}

int run(const Options& options) {
  if (!options.json) {
    std::printf("latency %.1f us, %.2f GB/s each way, %.1f us for a message, %s under way\n",
                options.costs.latency_us, options.costs.gigabytes, options.costs.message_us,
                size_text(options.costs.window_bytes).c_str());
  }
  for (const std::uint32_t nodes : options.nodes) {
    std::vector<Row> rows;
    for (std::uint64_t bytes = 1 << 10; bytes <= std::uint64_t{1} << 30; bytes *= 4)
      rows.push_back(row_of(options, nodes, bytes));
    options.json ? print_json(rows, nodes) : print(rows, nodes);
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace arcomm::bench

int main(int argc, char** argv) {
  const auto options = arcomm::bench::parse(argc, argv);
  if (!options) {
    std::fputs(arcomm::bench::kUsage, stderr);
    return EXIT_FAILURE;
  }
  return arcomm::bench::run(*options);
}

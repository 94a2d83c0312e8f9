#include "daemon/plan/launch_table_builder.h"

#include <algorithm>
#include <utility>

#include "daemon/plan/gpu_paths.h"
#include "daemon/plan/recorded_algorithm.h"
#include "kernels/codec/format.h"
#include "proto/host/in_call.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kCacheLine = 64;  // as partition.h cuts shards
constexpr std::uint64_t kLl16BlockBytes = std::uint64_t{kInStreamThreads} * 8;
// One hop is spread over the SMs before their warps are used up, as latency is what counts; two
// hops keep more of what belongs together on one. With a codec there is more work on each packet.
constexpr std::uint64_t kOneHopPackets = 4, kTwoHopPackets = 12;  // of a block, of all its peers
constexpr std::uint64_t kCodedTwoHopPackets = 6;

// Those whose packets have that shape: each holds as much, and so goes as far.
constexpr std::uint8_t codecs_of(const PacketShape& shape) {
  std::uint8_t codecs = 0;
  for (const Codec codec : kRealCodecs) {
    if (format_of(codec).bits == shape.bits) codecs |= bit_of(codec);
  }
  return codecs;
}

// Numbers of the launched rows: a CudaAlgorithm, or what the flight recorder calls the way between
// nodes.
std::optional<NetworkAlgorithm> algorithm_between_nodes(std::uint8_t number) {
  for (const NetworkAlgorithm algorithm : kNetworkAlgorithms) {
    if (recorded(algorithm) == number) return algorithm;
  }
  return std::nullopt;
}

// In-stream rows, each up to what was measured and never beyond what the areas of its blocks hold.
class InStreamRows {
 public:
  InStreamRows(const LaunchFacts& facts, std::vector<LaunchRow>& rows)
      : facts_(facts), blocks_(std::min(facts.in_stream_blocks, kMaxInStreamBlocks)), rows_(rows) {}

  void add_all() {
    if (blocks_ == 0 || facts_.ranks < 2 || facts_.ranks > kMaxGpuRanks) return;
    const bool is_pair = facts_.ranks == 2;
    add_ll16((is_pair || !facts_.atomic_128b_stores ? 64 : 32) * kKiB);
    if (!facts_.atomic_128b_stores) return;
    if (is_pair) {
      add_one_hop(InStreamAlgorithm::PairLl128, 16 * 1024 * kKiB, kInStreamLaps * kInStreamSlots);
      return;
    }
    add_one_hop(InStreamAlgorithm::OneShotLl128, (facts_.ranks <= 4 ? 256 : 128) * kKiB, 1);
    add_two_hops(2048 * kKiB);
  }

  // Every size that a call can say, as nothing else takes a codec.
  void add_coded() {
    if (!facts_.codecs || !facts_.atomic_128b_stores) return;
    if (blocks_ == 0 || facts_.ranks < 2 || facts_.ranks > kMaxGpuRanks) return;
    for (const PacketShape& shape : kPacketShapes) {
      add_coded(shape, bit_of(DType::Float16) | bit_of(DType::BFloat16), 2);
      add_coded(shape, bit_of(DType::Float32), 4);
    }
  }

 private:
  void add_ll16(std::uint64_t most_bytes) {
    const std::uint32_t blocks = std::min(blocks_, kMaxInStreamLl16Blocks);
    add(std::min(most_bytes, blocks * kLl16BlockBytes), InStreamAlgorithm::OneShotLl16,
        kLl16BlockBytes, blocks);
  }
  // packets_each: of a warp, at most.
  void add_one_hop(InStreamAlgorithm algorithm, std::uint64_t most_bytes,
                   std::uint64_t packets_each) {
    const std::uint64_t room = blocks_ * packets_each * kInStreamPartPackets * kInStreamPacketData;
    add(std::min(most_bytes, room), algorithm, kOneHopPackets * kInStreamPacketData, blocks_);
  }
  void add_two_hops(std::uint64_t most_bytes) {
    const std::uint64_t ranks = facts_.ranks;
    const std::uint64_t longest_shard =
        blocks_ * kInStreamPartPackets * kInStreamPacketData / kCacheLine * kCacheLine;
    add(std::min(most_bytes, longest_shard * ranks), InStreamAlgorithm::TwoShotLl128,
        kTwoHopPackets * kInStreamPacketData * ranks / (ranks - 1), blocks_);
  }
  void add_coded(const PacketShape& shape, std::uint16_t dtypes, std::uint64_t element_bytes) {
    const std::uint64_t ranks = facts_.ranks, elements = shape.elements();
    const bool is_pair = ranks == 2;
    // Of a warp between two; of a warp's own shard between more, of which the first is longest.
    const std::uint64_t packets_each =
        std::uint64_t{kMostInStreamLaps} * (is_pair ? kInStreamSlots : 1);
    const std::uint64_t room = blocks_ * packets_each * kInStreamPartPackets * elements /
                               kCodecBlock * kCodecBlock * (is_pair ? 1 : ranks);
    const std::uint64_t of_block =
        is_pair ? kOneHopPackets : kCodedTwoHopPackets * ranks / (ranks - 1);
    rows_.push_back(
        {.most_bytes = std::min(room, kMostInStreamCount) * element_bytes,
         .dtypes = dtypes,
         .ops = kInStreamCodecOps,
         .codecs = codecs_of(shape),
         .collectives = kInStreamCollectives,
         .path = LaunchPath::InStream,
         .algorithm = coded_algorithm(facts_.ranks),
         .bytes_per_block = static_cast<std::uint32_t>(of_block * elements * element_bytes),
         .most_blocks = blocks_});
  }
  void add(std::uint64_t most_bytes, InStreamAlgorithm algorithm, std::uint64_t bytes_per_block,
           std::uint32_t most_blocks) {
    most_bytes = std::min(most_bytes, facts_.most_in_stream_bytes);
    if (!rows_.empty() && most_bytes <= rows_.back().most_bytes) return;
    rows_.push_back({.most_bytes = most_bytes,
                     .dtypes = kInStreamDTypes,
                     .codecs = bit_of(Codec::None),
                     .collectives = kInStreamCollectives,
                     .path = LaunchPath::InStream,
                     .algorithm = algorithm,
                     .bytes_per_block = static_cast<std::uint32_t>(bytes_per_block),
                     .most_blocks = most_blocks});
  }

  const LaunchFacts& facts_;
  const std::uint32_t blocks_;
  std::vector<LaunchRow>& rows_;
};

void add_launched(const LaunchFacts& facts, std::vector<LaunchRow>& rows) {
  std::vector<LaunchedStretch> launched = facts.launched;
  if (launched.empty())
    launched = {{.algorithm = facts.ranks < 2 ? CudaAlgorithm::Alone : CudaAlgorithm::TwoShot}};
  // The last one takes everything: of a table with more steps than rows are left, the middle goes.
  const std::size_t room = kMaxLaunchRows - rows.size();
  if (launched.size() > room)
    launched.erase(launched.begin() + static_cast<std::ptrdiff_t>(room) - 1, launched.end() - 1);
  for (const auto& [most_bytes, algorithm] : launched) {
    rows.push_back({.most_bytes = most_bytes,
                    .codecs = entry_of(algorithm).codecs,
                    .launched = static_cast<std::uint8_t>(algorithm)});
  }
  rows.back().codecs = kAllCodecs;  // what nothing serves is refused where a plan is made
}

// From which size on which codec is faster than none, the fastest first: float16 between two H100,
// in a graph, of the fourfold sizes that were measured (tests/gpu/bench/README.md). As many bytes
// of float32 are half as many elements to encode. Encoding fills SMs, so that on a smaller share of
// them it takes longer than what it saves; and nobody has measured more ranks.
std::vector<CodingRow> coding_rows(const LaunchFacts& facts) {
  if (!facts.codecs || !facts.atomic_128b_stores || facts.ranks != 2 ||
      facts.in_stream_blocks < kMaxInStreamBlocks)
    return {};
  constexpr std::uint64_t kMiB = 1024 * kKiB;
  std::vector<CodingRow> rows;
  for (const auto& [codec, least_bytes] : {std::pair{Codec::Q4, 4 * kMiB},
                                           {Codec::Q4Rotated, 4 * kMiB},
                                           {Codec::Q6, 16 * kMiB},
                                           {Codec::Q6Rotated, 16 * kMiB},
                                           {Codec::Fp8, 4 * kMiB},
                                           {Codec::Q8, 4 * kMiB},
                                           {Codec::Q8Rotated, 4 * kMiB}}) {
    rows.push_back({.codec = codec, .least_bytes = least_bytes, .dtypes = kInStreamDTypes});
  }
  return rows;
}

}  // namespace

LaunchTable make_launch_table(const LaunchFacts& facts) {
  std::vector<LaunchRow> rows;
  InStreamRows in_stream(facts, rows);
  in_stream.add_all();
  in_stream.add_coded();
  // A copy, and a codec changes what arrives.
  if (facts.ranks == 1) rows.push_back({.codecs = bit_of(Codec::None), .path = LaunchPath::Alone});
  if (facts.ranks >= 2)
    rows.push_back({.most_bytes = most_resident_bytes(facts.ranks),
                    .codecs = kResidentCodecs,
                    .collectives = kResidentCollectives,
                    .path = LaunchPath::Resident});
  add_launched(facts, rows);
  Result<LaunchTable> table = LaunchTable::create(facts.ranks, std::move(rows), coding_rows(facts));
  // Only for a number of ranks that no communicator has; a table that serves all is better than
  // none.
  return table ? std::move(table).value() : LaunchTable();
}

LaunchTable make_launch_table_on_host(std::uint32_t ranks, const InCallBounds& in_call) {
  constexpr std::uint16_t kHalves = bit_of(DType::Float16) | bit_of(DType::BFloat16);
  std::vector<LaunchRow> rows;
  const auto add = [&rows](std::uint64_t most_bytes, unsigned dtypes) {
    if (most_bytes == 0) return;
    rows.push_back({.most_bytes = most_bytes,
                    .dtypes = static_cast<std::uint16_t>(dtypes),
                    .codecs = kInCallCodecs,
                    .collectives = kInCallCollectives,
                    .path = LaunchPath::InCall});
  };
  add(in_call.half, kHalves);
  add(in_call.plain, kAllDTypes & ~kHalves);
  rows.emplace_back();
  Result<LaunchTable> table = LaunchTable::create(ranks, std::move(rows));
  return table ? std::move(table).value() : LaunchTable();
}

CudaAlgorithm launched_algorithm(std::uint8_t number) {
  return number < cuda_algorithms().size() ? static_cast<CudaAlgorithm>(number)
                                           : CudaAlgorithm::TwoShot;
}

std::vector<LaunchStretch> stretches_of(const LaunchTable& table, DType dtype) {
  std::vector<LaunchStretch> found;
  std::uint64_t from = 0;
  for (const LaunchRow& row : table.rows()) {
    if ((row.dtypes & bit_of(dtype)) == 0 || (row.codecs & bit_of(Codec::None)) == 0) continue;
    if (from != 0 && row.most_bytes < from) continue;  // behind rows that take as much
    LaunchStretch next{.path = row.path, .most_bytes = row.most_bytes};
    if (row.path == LaunchPath::Launched) {
      next.between_nodes = algorithm_between_nodes(row.launched);
      if (!next.between_nodes) next.launched = launched_algorithm(row.launched);
    }
    if (!found.empty() && found.back().path == next.path &&
        found.back().launched == next.launched && found.back().between_nodes == next.between_nodes)
      found.pop_back();
    found.push_back(next);
    if (row.most_bytes == kAnyBytes) break;
    from = row.most_bytes + 1;
  }
  return found;
}

}  // namespace arcomm

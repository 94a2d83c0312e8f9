#include "daemon/plan/network/ring_tiers.h"

#include <algorithm>
#include <bit>
#include <span>

namespace arcomm {
namespace {

constexpr std::uint64_t kib(std::uint64_t number) {
  return number << 10;
}
constexpr std::uint64_t mib(std::uint64_t number) {
  return number << 20;
}

struct DepthTier {
  std::uint64_t below_bytes;  // of a node's share; 0: the rest
  std::uint32_t depth;
};
constexpr DepthTier kHopperDepths[] = {{kib(32), 1}, {mib(1), 2}, {mib(4), 4}, {mib(8), 2}, {0, 1}};
constexpr DepthTier kNewerDepths[] = {{kib(32), 1}, {mib(32), 2}, {0, 1}};

struct BlockTier {
  std::uint64_t below_bytes;  // of a chunk; 0: the rest
  std::uint32_t blocks, threads;
};
constexpr BlockTier kHopperBlocks[] = {
    {kib(16), 1, 384}, {kib(128), 1, 512}, {kib(512), 2, 512}, {0, 4, 512}};
constexpr BlockTier kNewerBlocks[] = {{kib(8), 1, 0}, {kib(32), 2, 0}, {kib(64), 4, 0}, {0, 8, 0}};

struct Tiers {
  std::span<const DepthTier> depths;
  std::span<const BlockTier> blocks;
  std::uint64_t max_bdp_bytes;
  std::uint64_t bidirectional_bytes;  // up to so many
};
Tiers tiers_of(RingArch arch) {
  switch (arch) {
    case RingArch::Hopper:
      return {kHopperDepths, kHopperBlocks, mib(32), mib(4)};
    case RingArch::Newer:
      return {kNewerDepths, kNewerBlocks, mib(128), mib(128)};
  }
  return {kHopperDepths, kHopperBlocks, mib(32), mib(4)};
}

template <typename Tier>
const Tier& find_tier(std::span<const Tier> tiers, std::uint64_t bytes) {
  return *std::find_if(tiers.begin(), tiers.end(), [bytes](const Tier& tier) {
    return tier.below_bytes == 0 || bytes < tier.below_bytes;
  });
}

// Among many nodes newer GPUs take few large chunks rather than many small ones.
constexpr std::uint32_t kManyNodes = 32;
constexpr std::uint64_t kChunkOfMany = mib(2);

// To the nearest power of two, the larger one in the middle.
std::uint64_t nearest_power_of_two(std::uint64_t number) {
  if (number <= 1) return 1;
  const std::uint64_t below = std::bit_floor(number);
  return number - below < 2 * below - number ? below : 2 * below;
}

std::uint64_t whole_elements(std::uint64_t bytes, std::uint64_t element_bytes) {
  return std::max<std::uint64_t>(bytes / element_bytes, 1) * element_bytes;
}

// No more under way than `most`: fewer chunks first, then smaller ones, since with one alone
// nothing is sent while it is combined.
void fit(RingShape& shape, std::uint64_t most, std::uint64_t element_bytes, RingBound bound) {
  if (shape.in_flight_bytes() <= most) return;
  shape.bound = bound;
  shape.slots = most / shape.chunk_bytes;
  if (shape.slots >= 2) return;
  shape.slots = 2;
  shape.chunk_bytes = std::min(shape.chunk_bytes, whole_elements(most / 2, element_bytes));
  if (shape.in_flight_bytes() > most) shape.slots = 1;
}

bool goes_both_ways(std::uint64_t bytes, std::uint32_t nodes, std::int64_t limit,
                    std::uint64_t automatic) {
  if (nodes <= 2 || limit == 0) return false;
  if (limit == -1) return true;
  return bytes <= (limit < 0 ? automatic : static_cast<std::uint64_t>(limit));
}

}  // namespace

std::string_view text_of(RingBound bound) {
  switch (bound) {
    case RingBound::Tier:
      return "the tier of this size";
    case RingBound::Bdp:
      return "the bandwidth-delay product (ring.max_bdp_bytes)";
    case RingBound::Chunk:
      return "the largest chunk";
    case RingBound::Staging:
      return "staging, of which each neighbour has a window";
    case RingBound::Setting:
      return "ring.chunk_bytes and ring.num_chunks";
  }
  return "unknown bound";
}

RingShape ring_shape(std::uint64_t bytes, std::uint32_t nodes, const RingRoom& room,
                     const Settings::Ring& limits) {
  const Tiers tiers = tiers_of(room.arch);
  const std::uint64_t max_bdp =
      limits.max_bdp_bytes != 0 ? limits.max_bdp_bytes : tiers.max_bdp_bytes;
  const std::uint64_t message = nearest_power_of_two(bytes);
  RingShape shape;
  shape.depth = find_tier(tiers.depths, message / nodes).depth;

  // Of a partition, which is what is under way to a neighbour, a shard has `depth` chunks.
  std::uint64_t partition = message;
  while (partition > max_bdp) {
    partition /= 2;
    shape.bound = RingBound::Bdp;
  }
  shape.chunk_bytes = std::max(partition / (nearest_power_of_two(nodes) * shape.depth),
                               std::min(kCacheLineBytes, room.most_chunk_bytes));
  if (room.arch == RingArch::Newer && nodes > kManyNodes) {
    while (shape.chunk_bytes < kChunkOfMany && partition / shape.chunk_bytes > kManyNodes)
      shape.chunk_bytes *= 2;
  }
  if (limits.chunk_bytes != 0) {
    shape.chunk_bytes = limits.chunk_bytes;
    if (shape.bound == RingBound::Tier) shape.bound = RingBound::Setting;
  }
  if (shape.chunk_bytes > room.most_chunk_bytes) {
    shape.chunk_bytes = room.most_chunk_bytes;
    if (shape.bound == RingBound::Tier) shape.bound = RingBound::Chunk;
  }
  shape.chunk_bytes = whole_elements(shape.chunk_bytes, room.element_bytes);
  shape.slots = (std::max(partition, std::uint64_t{1}) + shape.chunk_bytes - 1) / shape.chunk_bytes;
  if (limits.num_chunks != 0) {
    shape.slots = limits.num_chunks;
    shape.bound = RingBound::Setting;
  }
  fit(shape, std::max(max_bdp, room.element_bytes), room.element_bytes, RingBound::Bdp);
  fit(shape, room.staging_bytes, room.element_bytes, RingBound::Staging);

  shape.bidirectional =
      goes_both_ways(bytes, nodes, limits.bidirectional_max_bytes, tiers.bidirectional_bytes);
  const BlockTier& tier = find_tier(tiers.blocks, shape.chunk_bytes);
  shape.blocks = tier.blocks;
  if (limits.max_blocks != 0) {
    shape.blocks =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(limits.max_blocks, tier.blocks));
  }
  shape.threads = limits.threads != 0 ? static_cast<std::uint32_t>(limits.threads) : tier.threads;
  return shape;
}

RingRounds::RingRounds(const NetworkQuestion& question, std::uint64_t chunk_elements,
                       std::uint64_t slots)
    : question_(question), chunk_elements_(chunk_elements) {
  const std::uint64_t line = NetworkShards::elements_in_line(question);
  const std::uint64_t most = std::max<std::uint64_t>(chunk_elements_ * slots / line, 1) * line;
  rounds_ = std::max<std::uint64_t>(tile_count(NetworkShards(question).most_elements(), most), 1);
}

ElementRange RingRounds::piece(std::uint32_t shard, std::uint64_t round) const {
  const ElementRange whole = NetworkShards(question_).of(shard);
  NetworkQuestion pieces = question_;
  pieces.count = whole.size();
  const ElementRange within = NetworkShards(pieces, rounds_).of(round);
  return {whole.first + within.first, whole.first + within.last};
}

}  // namespace arcomm

// The ring's arithmetic, for any number of nodes: every shard is combined of all nodes' parts and
// reaches everybody, in as many rounds as there have to be.
#include "kernels/network/ring_steps.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace arcomm {
namespace {

TEST(RingSteps, EveryShardMeetsAllNodesAndReachesAll) {
  for (const bool both : {false, true}) {
    for (std::uint32_t nodes = 2; nodes <= 33; ++nodes) {
      std::vector<Ring> rings;
      for (std::uint32_t node = 0; node < nodes; ++node) rings.push_back({node, nodes, both});
      // parts[node][shard]: whose parts are in what the node has of it.
      std::vector<std::vector<std::set<std::uint32_t>>> parts(nodes);
      for (std::uint32_t node = 0; node < nodes; ++node) parts[node].assign(nodes, {node});
      for (std::uint32_t round = 0; round < nodes - 1; ++round) {
        for (std::uint32_t node = 0; node < nodes; ++node) {
          const Ring& ring = rings[node];
          const Ring& left = rings[ring.left()];
          ASSERT_EQ(left.reduce_sends(round), ring.reduce_receives(round));
          const std::uint32_t shard = ring.reduce_receives(round);
          // A round later it is sent on.
          if (round + 1 < ring.reduce_rounds()) {
            ASSERT_EQ(ring.reduce_sends(round + 1), shard);
          }
        }
        auto before = parts;
        for (std::uint32_t node = 0; node < nodes; ++node) {
          const std::uint32_t shard = rings[node].reduce_receives(round);
          parts[node][shard].insert(before[rings[node].left()][shard].begin(),
                                    before[rings[node].left()][shard].end());
        }
      }
      for (std::uint32_t node = 0; node < nodes; ++node) {
        const Ring& ring = rings[node];
        ASSERT_EQ(parts[node][ring.owned()].size(), nodes);
        std::set<std::uint32_t> has{ring.owned()};
        for (std::uint32_t round = 0; round < ring.right_rounds(); ++round)
          has.insert(ring.from_left(round));
        for (std::uint32_t round = 0; round < ring.left_rounds(); ++round)
          has.insert(ring.from_right(round));
        ASSERT_EQ(has.size(), nodes);
        ASSERT_EQ(ring.right_rounds(), both ? (nodes - 1 + 1) / 2 : nodes - 1);
        ASSERT_EQ(ring.right_rounds() + ring.left_rounds(), nodes - 1);
        // What one sends is what its neighbour takes for it.
        for (std::uint32_t round = 0; round < ring.right_rounds(); ++round) {
          const Ring& left = rings[ring.left()];
          ASSERT_EQ(ring.from_left(round), round == 0 ? left.owned() : left.from_left(round - 1));
        }
        for (std::uint32_t round = 0; round < ring.left_rounds(); ++round) {
          const Ring& right = rings[ring.right()];
          ASSERT_EQ(ring.from_right(round),
                    round == 0 ? right.owned() : right.from_right(round - 1));
        }
      }
    }
  }
}

TEST(RingSteps, ChunksOfAllLanesAndPartitionsCoverAShardOnce) {
  for (const std::uint64_t count : {0U, 1U, 63U, 64U, 65U, 1000U, 12345U}) {
    for (std::uint32_t nodes = 2; nodes <= 5; ++nodes) {
      NetworkCall call{.count = count,
                       .nodes = nodes,
                       .lanes = 3,
                       .chunk_elements = 64,
                       .depth = 2,
                       .dtype = DType::Float32};
      std::vector<int> covered(count);
      for (std::uint32_t shard = 0; shard < nodes; ++shard) {
        for (std::uint32_t lane = 0; lane < call.lanes; ++lane) {
          const RingChunks chunks(call, lane, shard);
          std::uint64_t all = 0;
          for (std::uint64_t partition = 0; partition < ring_partitions(call, lane); ++partition) {
            const std::uint64_t some = chunks.in_partition(partition);
            ASSERT_LE(some, call.depth);
            for (std::uint64_t n = 0; n < some; ++n) {
              const ElementRange chunk = chunks.chunk(partition, n);
              ASSERT_FALSE(chunk.empty());
              for (std::uint64_t i = chunk.first; i < chunk.last; ++i) ++covered[i];
            }
            all += some;
          }
          ASSERT_EQ(all, chunks.all());
        }
      }
      for (const int times : covered) ASSERT_EQ(times, 1);
    }
  }
}

TEST(RingSteps, WhatANodeSendsIsWhatItsPeerExpects) {
  for (const bool both : {false, true}) {
    for (std::uint32_t nodes = 2; nodes <= 6; ++nodes) {
      for (std::uint32_t node = 0; node < nodes; ++node) {
        for (std::uint32_t peer = 0; peer < nodes; ++peer) {
          if (peer == node) continue;
          NetworkCall call{
              .count = 5000, .node = node, .nodes = nodes, .lanes = 2, .chunk_elements = 64};
          const auto sent = ring_steps(call, both, 1, peer, FifoDirection::Send);
          call.node = peer;
          EXPECT_EQ(sent, ring_steps(call, both, 1, node, FifoDirection::Receive));
        }
      }
    }
  }
}

}  // namespace
}  // namespace arcomm

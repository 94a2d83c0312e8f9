// All nodes of an AllReduce in one memory: runs what the plans between nodes say, chunk by chunk,
// with the host kernels and no sockets. Whatever is under way may arrive next, so that an order
// that a plan does not enforce is not kept by chance. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "daemon/plan/network/network_choice.h"
#include "daemon/plan/network/ring_tiers.h"
#include "kernels/partition.h"

namespace arcomm {

struct MemoryOperation {
  NetworkQuestion question;
  NetworkChoice choice;
  std::uint32_t world = 0;  // ranks of all nodes
  // By node, of `choice.partials`.
  std::vector<std::vector<std::byte>> partials;
};

// Each node's result; `random` draws what arrives next. Adds a test failure where a chunk comes
// twice, or before what it needs.
std::vector<std::vector<std::byte>> run_exchange(const MemoryOperation& operation,
                                                 std::uint64_t chunk_elements,
                                                 std::mt19937_64& random);
std::vector<std::vector<std::byte>> run_direct(const MemoryOperation& operation,
                                               std::uint64_t chunk_elements,
                                               std::mt19937_64& random);
std::vector<std::vector<std::byte>> run_ring(const MemoryOperation& operation,
                                             const RingShape& shape, std::mt19937_64& random);

// What the orders are, spelled out: nodes ascending; or around the ring, shard by shard.
std::vector<std::byte> result_in_order_of_nodes(const MemoryOperation& operation);
std::vector<std::byte> result_in_order_of_ring(const MemoryOperation& operation);

}  // namespace arcomm

// Which codecs pay between nodes, and from which size on: the rows of launch tables (CodingRow) by
// which operations that ask for an error class get one. They follow from where the ranks are and
// from the communicator's policy alone, so that all nodes have the same. Pure; any thread.
//
// A codec pays where what it saves on the link is more than coding takes. The link's throughput is
// what `arctl tune --network` measured at the daemon where the communicator met.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/plan/network/network_question.h"
#include "daemon/plan/network_policy.h"
#include "proto/gpu/launch_table.h"

namespace arcomm {

// Below it what was measured differs by less than from run to run.
inline constexpr std::uint64_t kLeastCodedBytes = std::uint64_t{64} << 10;
// As many times as fast as without: what is less may be the model's error.
inline constexpr double kLeastCodingGain = 1.25;

// Where the ranks of a communicator that spans nodes are.
struct RanksOnNodes {
  std::uint32_t ranks = 2, nodes = 2;
  bool on_gpus = false;

  bool one_seat_each() const { return ranks == nodes; }
};

// What coding takes of an operation beside the link. Picoseconds of an element: to encode a node's
// sum, to decode one node's and add it to the others'. Whole numbers, as all that is added up here:
// processors may round sums of products differently, and nodes must not.
struct CodingCost {
  std::uint64_t encode_ps = 0, decode_ps = 0;
  std::uint64_t begin_ns = 0;  // whatever its size
};
CodingCost coding_cost(Codec codec, bool on_gpus);

// How many times as fast the operation is with its codec as it would be without one, by the bytes
// that go over the link and what coding takes; 0 where the link's throughput is not known. While a
// chunk travels the next one is encoded, so that the longer of the two counts.
double coding_gain(const NetworkQuestion& question, bool on_gpus, const NetworkPolicy& policy);

// The fastest first. None where the nodes do not all go by these rules, where GPUs are not allowed
// any codec, where operations go around a ring, or where nothing pays.
std::vector<CodingRow> coding_rows_between_nodes(const RanksOnNodes& where,
                                                 const NetworkPolicy& policy);
// Whether large operations go around a ring, where a value is quantized as often as there are
// nodes: no error class is worth that.
bool goes_round(const RanksOnNodes& where, const NetworkPolicy& policy);

}  // namespace arcomm

// One randomly drawn AllReduce: what it is, what its inputs are and what every rank must hold
// afterwards. Plain values, all of them functions of the seed.
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "proto/types.h"
#include "tests/integration/client_api/rank_memory.h"

namespace arcomm {

enum class CallShape : std::uint8_t {
  Blocking,
  Asynchronous,  // waited for, or tested until done
  Planned,       // a persistent plan, started three times
  Grouped,       // one thread submits for all ranks between arcGroupStart and arcGroupEnd
};
inline constexpr unsigned kCallShapes = 4;

// Where a rank keeps its data; each rank of a case may do it differently.
struct Placement {
  MemoryKind send_kind = MemoryKind::Heap;
  MemoryKind recv_kind = MemoryKind::Heap;
  bool is_in_place = false;
  std::size_t send_offset = 0;  // elements from the start of its memory
  std::size_t recv_offset = 0;
};

struct ApiCase {
  std::uint64_t seed = 0;
  int ranks = 1;
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  std::size_t count = 0;
  CallShape shape = CallShape::Blocking;
  std::vector<Placement> placements;  // by rank
};
std::ostream& operator<<(std::ostream& out, const ApiCase& api_case);

// `ranks` is given because communicators are formed once; offsets stay below kLargestOffset
// elements.
inline constexpr std::size_t kLargestOffset = 64;
ApiCase draw_case(std::uint64_t seed, int ranks, std::size_t max_bytes);

using Bytes = std::vector<std::byte>;
// By rank: any bits for integers; for floats mostly plain numbers, now and then infinities, NaN,
// denormals and zeros of both signs.
std::vector<Bytes> inputs_of(const ApiCase& api_case);
// What the scalar oracle says every rank must receive, bit for bit.
Bytes expected_of(const ApiCase& api_case, const std::vector<Bytes>& inputs);

}  // namespace arcomm

// What an AllReduce with a codec must come to, bit for bit: the golden codec's result of the test
// clients' patterns. Any thread.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/host/reference.h"
#include "tests/support/pattern.h"

namespace arcomm::support {

// The hash of what the ranks' patterns become; Codec::None: of their exact reduction.
inline std::string golden_result(const std::string& type, const std::string& op, std::size_t count,
                                 std::uint32_t ranks, Codec codec) {
  arcDataType_t dtype{};
  arcRedOp_t operation{};
  EXPECT_TRUE(parse_dtype(type, &dtype) && parse_op(op, &operation));
  AllReduceArgs args = AllReduceArgs::among(ranks, count, static_cast<DType>(dtype),
                                            static_cast<ReduceOp>(operation));
  args.codec = codec;
  args.num_outputs = 1;
  const std::size_t bytes = count * element_bytes(dtype);
  std::vector<std::vector<std::byte>> inputs(ranks, std::vector<std::byte>(bytes));
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    fill_pattern(inputs[rank].data(), count, dtype, operation, static_cast<int>(rank), 0);
    args.inputs[rank] = inputs[rank].data();
  }
  std::vector<std::byte> result(bytes);
  args.outputs[0] = result.data();
  reference::all_reduce_range(args, 0, count);
  return std::to_string(hash_bytes(result.data(), bytes));
}

}  // namespace arcomm::support

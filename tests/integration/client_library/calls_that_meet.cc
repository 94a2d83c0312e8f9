// Operations that meet in the ranks' calls, through the C ABI: their bits, and what of the caller's
// memory they touch.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/host/reduce_in_call.h"
#include "kernels/host/reference.h"
#include "proto/host/in_call.h"
#include "tests/integration/client_library/client_library.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/metrics_scrape.h"
#include "tests/unit/kernels/sample_operation.h"

namespace arcomm::support {
namespace {

using Bytes = std::vector<std::byte>;
using Side = GuardedMemory::Side;

constexpr std::byte kPoison{0xa5};

// One operation: what the ranks send, and what it comes to.
struct Sampled {
  DType dtype;
  ReduceOp op;
  std::uint64_t count;
  bool in_place;
  std::vector<Bytes> sent;
  Bytes expected;
};

Sampled sampled(DType dtype, ReduceOp op, std::uint64_t count, bool in_place, std::uint32_t ranks,
                std::mt19937_64& random) {
  Bytes nothing(count * size_of(dtype));
  Sampled made{dtype, op, count, in_place, std::vector<Bytes>(ranks, nothing), nothing};
  AllReduceArgs args = AllReduceArgs::among(ranks, count, dtype, op);
  args.num_outputs = 1;
  args.outputs[0] = made.expected.data();
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    fill_sample(made.sent[rank].data(), count, dtype, random);
    args.inputs[rank] = made.sent[rank].data();
  }
  reference::all_reduce_range(args, 0, count);
  return made;
}

// Every type and operation, in place and not, around what lies beside the head of an operation.
std::vector<Sampled> around_the_size_beside_the_head(std::uint32_t ranks) {
  std::mt19937_64 random(ranks);
  std::vector<Sampled> all;
  for (const DType dtype : kEveryType) {
    const std::uint64_t most = kInCallBytesBesideHead / size_of(dtype);
    for (const ReduceOp op : kEveryOp) {
      for (std::uint64_t count = most - 1; count <= most + 1; ++count) {
        for (const bool in_place : {false, true})
          all.push_back(sampled(dtype, op, count, in_place, ranks, random));
      }
    }
  }
  return all;
}

// Between pages that nobody may touch, and with poison beside what is sent and received. Empty, or
// the first difference.
std::string run_on_one_rank(const arc::Communicator& comm, std::size_t rank,
                            const std::vector<Sampled>& all) {
  GuardedMemory send(4096), recv(4096);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Sampled& each = all[i];
    const std::size_t bytes = each.expected.size();
    const Side side = (i + rank) % 2 == 0 ? Side::Begin : Side::End;
    std::ranges::fill(send.all(), kPoison);
    std::ranges::fill(recv.all(), kPoison);
    std::byte* const from = send.at(side, bytes);
    std::byte* const to = each.in_place ? from : recv.at(side, bytes);
    std::ranges::copy(each.sent[rank], from);
    const auto wrong = [&](const std::string& what) {
      return "operation " + std::to_string(i) + " (type " +
             std::to_string(static_cast<int>(each.dtype)) + ", " + std::to_string(bytes) +
             " bytes) of rank " + std::to_string(rank) + ": " + what;
    };
    if (arcAllReduce(from, to, each.count, static_cast<arcDataType_t>(each.dtype),
                     static_cast<arcRedOp_t>(each.op), comm.get(), nullptr) != arcSuccess)
      return wrong(arcGetLastError(nullptr));
    if (!std::ranges::equal(each.expected, std::span(to, bytes))) return wrong("other bits");
    if (!each.in_place && !std::ranges::equal(each.sent[rank], std::span(from, bytes)))
      return wrong("what it sends has changed");
    if (!send.is_all(kPoison, side, bytes) ||
        !recv.is_all(kPoison, side, each.in_place ? 0 : bytes))
      return wrong("bytes beside it have changed");
  }
  return "";
}

TEST_F(ClientLibrary, GivesTheReferencesBitsAroundTheSizeThatLiesBesideTheHeadOfACall) {
  if (!host::can_reduce_in_call()) GTEST_SKIP() << "needs AVX2";
  start();
  double met = 0;
  for (int ranks = 2; ranks <= 8; ++ranks) {
    comms_.clear();
    form(ranks);
    const std::vector<Sampled> all =
        around_the_size_beside_the_head(static_cast<std::uint32_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        EXPECT_EQ(run_on_one_rank(comm(rank), static_cast<std::size_t>(rank), all), "")
            << ranks << " ranks";
      });
    }
    for (std::thread& thread : threads) thread.join();
    // Not all of them do, on a busy machine.
    const double so_far = Metrics::scrape(*daemon_).value("arcomm_in_call_operations_total");
    EXPECT_GT(so_far, met) << ranks << " ranks: none of their calls has met";
    met = so_far;
  }
}

}  // namespace
}  // namespace arcomm::support

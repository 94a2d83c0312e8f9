// What calls that meet hand each other: where it lies, that its result is the reference's to the
// bit, and that nothing but the caller's own bytes is read or written.
#include "client/src/host/in_call/in_call_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/host/reduce_in_call.h"
#include "kernels/host/reference.h"
#include "proto/host/in_call.h"
#include "tests/support/guarded_memory.h"
#include "tests/unit/kernels/sample_operation.h"

namespace arcomm::client {
namespace {

using support::GuardedMemory;
using Side = GuardedMemory::Side;

constexpr std::byte kPoison{0xa5};
constexpr std::size_t kMostBytes = 20 << 10;
constexpr Side kSides[] = {Side::Begin, Side::End};

struct Exchange {
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  std::uint32_t ranks = 2;
  std::uint64_t count = 0;
  bool in_place = false;
  bool around_caches = false;
  Side side = Side::End;  // of the page that nobody may touch
  std::uint64_t seed = 0;

  std::string to_string() const {
    std::ostringstream text;
    text << dtype << ' ' << op << " ranks=" << ranks << " count=" << count
         << (in_place ? " in place" : "") << (around_caches ? " around caches" : "")
         << (side == Side::Begin ? " behind a page" : " before a page") << " seed=" << seed;
    return text.str();
  }
};

class InCallPartsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!host::can_reduce_in_call()) GTEST_SKIP() << "needs AVX2";
  }
  // Of memory that is just long enough for most: so that it is looked through in no time.
  struct Rank {
    explicit Rank(std::size_t most_bytes) : send(most_bytes), recv(most_bytes) {}
    GuardedMemory send, recv;
  };
  std::vector<std::unique_ptr<Rank>>& ranks_for(std::uint64_t bytes) {
    auto& ranks = bytes <= 4096 ? short_ : long_;
    while (ranks.size() < kMaxInCallRanks)
      ranks.push_back(std::make_unique<Rank>(bytes <= 4096 ? 4096 : kMostBytes));
    return ranks;
  }

  // Empty where all ranks hold the reference's result and nothing else has changed.
  std::string run_and_compare(const Exchange& exchange);

  static constexpr InCallLayout kLayout{kMaxInCallRanks, kMaxInCallBytes};
  SharedMapping memory_ =
      map_in_call_memory(create_in_call_memory(kLayout)->get(), kLayout.bytes()).value();
  std::uint32_t turn_ = 0;

 private:
  std::vector<std::unique_ptr<Rank>> short_, long_;
};

std::string InCallPartsTest::run_and_compare(const Exchange& exchange) {
  const std::uint64_t bytes = exchange.count * size_of(exchange.dtype);
  auto& memory = ranks_for(bytes);
  std::mt19937_64 random(exchange.seed);
  AllReduceArgs args =
      AllReduceArgs::among(exchange.ranks, exchange.count, exchange.dtype, exchange.op);
  args.num_outputs = 1;
  std::vector<std::vector<std::byte>> sent(exchange.ranks, std::vector<std::byte>(bytes));
  std::vector<std::byte> expected(bytes);
  args.outputs[0] = expected.data();
  const InCallLayout layout(exchange.ranks, bytes);  // of a communicator whose calls meet up to it
  std::vector<InCallParts> parts;
  std::vector<CollectiveCall> calls;
  for (std::uint32_t rank = 0; rank < exchange.ranks; ++rank) {
    fill_sample(sent[rank].data(), exchange.count, exchange.dtype, random);
    args.inputs[rank] = sent[rank].data();
    for (GuardedMemory* each : {&memory[rank]->send, &memory[rank]->recv})
      std::ranges::fill(each->all(), kPoison);
    std::byte* const send = memory[rank]->send.at(exchange.side, bytes);
    std::ranges::copy(sent[rank], send);
    parts.emplace_back(memory_.data(), layout, rank, exchange.around_caches);
    calls.push_back({all_reduce_of(exchange.count, exchange.dtype, exchange.op), send,
                     exchange.in_place ? send : memory[rank]->recv.at(exchange.side, bytes)});
  }
  reference::all_reduce_range(args, 0, exchange.count);

  for (std::uint32_t rank = 0; rank < exchange.ranks; ++rank) parts[rank].put(calls[rank], turn_);
  for (std::uint32_t rank = 0; rank < exchange.ranks; ++rank)
    parts[rank].combine(calls[rank], turn_);
  turn_ = 1 - turn_;

  const auto wrong = [&](std::uint32_t rank, const char* what) {
    return exchange.to_string() + ": rank " + std::to_string(rank) + ' ' + what;
  };
  for (std::uint32_t rank = 0; rank < exchange.ranks; ++rank) {
    if (!std::ranges::equal(expected, std::span(calls[rank].recv, bytes)))
      return wrong(rank, "has another result than the reference");
    if (!exchange.in_place && !std::ranges::equal(sent[rank], std::span(calls[rank].send, bytes)))
      return wrong(rank, "has lost what it sent");
    if (!memory[rank]->send.is_all(kPoison, exchange.side, bytes) ||
        !memory[rank]->recv.is_all(kPoison, exchange.side, exchange.in_place ? 0 : bytes))
      return wrong(rank, "has written beside what it was given");
  }
  return "";
}

// One byte more, and they lie in an area of their own.
TEST_F(InCallPartsTest, GiveTheReferencesBitsAroundTheSizeThatLiesBesideTheHead) {
  std::uint64_t seed = 0;
  for (const DType dtype : kEveryType) {
    const std::uint64_t most = kInCallBytesBesideHead / size_of(dtype);
    for (const ReduceOp op : kEveryOp) {
      for (std::uint32_t ranks = 2; ranks <= kMaxInCallRanks; ++ranks) {
        for (std::uint64_t count = most - 1; count <= most + 1; ++count) {
          for (const bool in_place : {false, true}) {
            for (const bool around_caches : {false, true}) {
              ASSERT_EQ(run_and_compare({.dtype = dtype,
                                         .op = op,
                                         .ranks = ranks,
                                         .count = count,
                                         .in_place = in_place,
                                         .around_caches = around_caches,
                                         .seed = seed}),
                        "");
            }
            ++seed;
          }
        }
      }
    }
  }
}

// Each byte count that a type can have, and those around what vectors, lines and blocks take whole.
TEST_F(InCallPartsTest, OfAnySizeTouchNothingBesideTheCallersBytesAndAreTheSameEitherWay) {
  std::uint64_t seed = 0;
  for (const DType dtype : kEveryType) {
    const std::uint64_t size = size_of(dtype);
    std::vector<std::uint64_t> counts;
    for (std::uint64_t count = 0; count <= 300 / size; ++count) counts.push_back(count);
    for (const std::uint64_t bound : {512, 1024, 4096, 16384}) {
      for (const std::int64_t beside : {-33, -16, -9, -1, 0, 1, 7, 31})
        counts.push_back(bound / size + static_cast<std::uint64_t>(beside));
    }
    for (const std::uint64_t count : counts) {
      ++seed;
      for (const Side side : kSides) {
        for (const bool around_caches : {false, true}) {
          ASSERT_EQ(run_and_compare({.dtype = dtype,
                                     .op = kEveryOp[seed % std::size(kEveryOp)],
                                     .ranks = 2 + static_cast<std::uint32_t>(seed % 7),
                                     .count = count,
                                     .in_place = (seed + (side == Side::Begin ? 1 : 0)) % 2 == 0,
                                     .around_caches = around_caches,
                                     .side = side,
                                     .seed = seed}),
                    "");
        }
      }
    }
  }
}

// Which place that is, is as much between two libraries as the layout: said here once more.
TEST_F(InCallPartsTest, LieBesideTheHeadOrInTheAreaOfTheTurnAndNowhereElse) {
  constexpr std::uint32_t kRanks = kMaxInCallRanks;
  const std::span<std::byte> memory(memory_.data(), kLayout.bytes());
  const std::vector<std::byte> before(memory.begin(), memory.end());
  std::vector<std::byte> sent(kMaxInCallBytes);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(1 + i % 251);
  for (const std::uint64_t bytes : {1, 7, 64, 103, 104, 105, 127, 128, 129, 1023, 1024, 1025, 1055,
                                    1056, 1057, 4099, 65535, 65536}) {
    for (std::uint32_t i = 0; i < 2 * kRanks; ++i) {
      const std::uint32_t rank = i / 2, turn = i % 2;
      const InCallParts parts(memory.data(), kLayout, rank, rank % 3 == 0);
      parts.put({all_reduce_of(bytes, DType::Uint8), sent.data(), nullptr}, turn);
      std::vector<std::byte> after = before;
      const std::uint64_t beside_head = offsetof(InCallControl, ranks) + rank * sizeof(InCallRank) +
                                        turn * sizeof(InCallHead) + offsetof(InCallHead, part);
      const std::uint64_t place =
          bytes <= 104 ? beside_head : 8192 + (2ull * rank + turn) * (64ull << 10);
      std::memcpy(after.data() + place, sent.data(), bytes);
      ASSERT_EQ(std::memcmp(memory.data(), after.data(), after.size()), 0)
          << bytes << " bytes of rank " << rank << " in turn " << turn;
      std::memcpy(memory.data(), before.data(), before.size());
    }
  }
}

}  // namespace
}  // namespace arcomm::client

// In-stream operations with a codec: the golden codec's bits on all ranks, of two ranks in one hop
// and of more in two, and what they do where ranks do not agree or do not come.
#include <array>

#include "tests/gpu/kernels/in_stream_fixture.h"

namespace arcomm::gpu {
namespace {

constexpr std::array kCodedTypes = {DType::Float16, DType::BFloat16, DType::Float32};
constexpr std::uint64_t kLongCount = (1 << 20) + 5;

class CodedInStream : public InStreamOnGpus {
 protected:
  void load(Codec codec) {
    for (Rank& rank : ranks_) {
      ARC_ASSERT_CUDA(cudaSetDevice(rank.device));
      const Status loaded = rank.kernels->load(codec);
      ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
    }
  }
};

TEST_P(CodedInStream, EqualTheGoldenCodecForEveryTypeOperationAndCount) {
  unsigned run = 0;
  for (const Codec codec : kRealCodecs) {
    ASSERT_NO_FATAL_FAILURE(load(codec));
    for (const DType dtype : kCodedTypes) {
      for (const std::uint64_t count :
           {std::uint64_t{1}, std::uint64_t{31}, std::uint64_t{32}, std::uint64_t{33},
            std::uint64_t{1000}, std::uint64_t{4097}, std::uint64_t{40'003}, kLongCount}) {
        for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg}) {
          if (count == kLongCount && (op == ReduceOp::Avg) == (run % 3 != 0)) {
            ++run;
            continue;  // one of the two: the golden codec is slow
          }
          const Operation what{
              .dtype = dtype, .op = op, .count = count, .in_place = ++run % 2 == 0, .codec = codec};
          ASSERT_NO_FATAL_FAILURE(check(what));
        }
      }
    }
  }
  expect_no_failure();
}

TEST_P(CodedInStream, TakeAnyPointerAlignedToTheElement) {
  for (const Codec codec : {Codec::Fp8, Codec::Q6Rotated, Codec::Q4}) {
    ASSERT_NO_FATAL_FAILURE(load(codec));
    for (const DType dtype : kCodedTypes) {
      for (const std::uint64_t send : {0U, 1U, 3U}) {
        for (const std::uint64_t recv : {0U, 2U}) {
          const std::uint64_t size = size_of(dtype);
          const Operation what{.dtype = dtype,
                               .count = 30'011,
                               .send_offset = send * size,
                               .recv_offset = recv * size,
                               .codec = codec};
          ASSERT_NO_FATAL_FAILURE(check(what));
        }
      }
    }
  }
  expect_no_failure();
}

// Slots again and again within an operation, as very long ones have them.
TEST_P(CodedInStream, GoOverTheSameSlotsAsOftenAsItTakes) {
  for (const Codec codec : {Codec::Q8, Codec::Q6, Codec::Q4Rotated}) {
    ASSERT_NO_FATAL_FAILURE(load(codec));
    for (const std::uint32_t blocks : {1U, 3U}) {
      for (int again = 0; again < 3; ++again) {
        ASSERT_NO_FATAL_FAILURE(
            check({.count = kLongCount, .in_place = again == 1, .codec = codec, .blocks = blocks}));
      }
    }
  }
  expect_no_failure();
}

// Long and short ones, with codecs and without, over turns that wipe; each replay on other inputs.
TEST_P(CodedInStream, GiveTheRightBitsOfEveryReplaysOwnInputs) {
  for (const Codec codec : {Codec::Q8, Codec::Q6Rotated}) ASSERT_NO_FATAL_FAILURE(load(codec));
  const Operation last{.count = 100'003, .codec = Codec::Q6Rotated};
  const std::array turns = {Operation{.count = 2'000},
                            Operation{.count = 99'999, .codec = Codec::Q8},
                            Operation{.count = 60'000},
                            Operation{.count = 33, .codec = Codec::Q8},
                            Operation{.count = 100'000, .codec = Codec::Q8, .blocks = 2},
                            last};
  std::vector<cudaGraphExec_t> graphs(ranks());
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    ARC_ASSERT_CUDA(cudaSetDevice(ranks_[rank].device));
    ARC_ASSERT_CUDA(cudaStreamBeginCapture(ranks_[rank].stream, cudaStreamCaptureModeThreadLocal));
    for (const Operation& what : turns) ASSERT_NO_FATAL_FAILURE(launch(rank, what));
    cudaGraph_t graph = nullptr;
    ARC_ASSERT_CUDA(cudaStreamEndCapture(ranks_[rank].stream, &graph));
    ARC_ASSERT_CUDA(cudaGraphInstantiate(&graphs[rank], graph, 0));
    cudaGraphDestroy(graph);
  }
  for (int input = 0; input < 12; ++input) {
    ASSERT_NO_FATAL_FAILURE(prepare(last));
    for (int replay = 0; replay < 40; ++replay) {
      for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
        ARC_ASSERT_CUDA(cudaSetDevice(ranks_[rank].device));
        ARC_ASSERT_CUDA(cudaGraphLaunch(graphs[rank], ranks_[rank].stream));
      }
    }
    ASSERT_NO_FATAL_FAILURE(synchronize());
    ASSERT_NO_FATAL_FAILURE(expect_results(last));
  }
  for (cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
  expect_no_failure();
}

TEST_P(CodedInStream, NameTheRankThatDoesNotComeAndWriteNothing) {
  ASSERT_NO_FATAL_FAILURE(load(Codec::Q4));
  const Operation what{.count = 500'000, .timeout_ns = 50'000'000, .codec = Codec::Q4};
  ASSERT_NO_FATAL_FAILURE(prepare(what));
  for (std::uint32_t rank = 0; rank + 1 < ranks(); ++rank)
    ASSERT_NO_FATAL_FAILURE(launch(rank, what));
  ASSERT_NO_FATAL_FAILURE(synchronize());
  expected_.assign(expected_.size(), std::byte{0xa5});
  expect_results(what);
  for (std::uint32_t rank = 0; rank + 1 < ranks(); ++rank) {
    EXPECT_EQ(failure(rank).reason, static_cast<std::uint8_t>(Reason::Timeout));
    EXPECT_EQ(failure(rank).culprit_rank, static_cast<std::int16_t>(ranks() - 1));
  }
}

// Ranks that ask for codecs of one length, or for one more element in the last of many rounds.
class CodedInStreamApart : public CodedInStream {};

TEST_P(CodedInStreamApart, TellRanksWithDifferentCodecs) {
  for (const Codec codec : {Codec::Q8, Codec::Fp8}) ASSERT_NO_FATAL_FAILURE(load(codec));
  const Operation what{.count = 20'000, .timeout_ns = 500'000'000, .codec = Codec::Q8};
  Operation other = what;
  other.codec = Codec::Fp8;
  expect_mismatch(what, other);
}

TEST_P(CodedInStreamApart, TellRanksOfWhichOneHasNoCodec) {
  ASSERT_NO_FATAL_FAILURE(load(Codec::Q8));
  const Operation what{.count = 600'000, .timeout_ns = 500'000'000, .codec = Codec::Q8};
  Operation other = what;
  other.codec = Codec::None;
  expect_mismatch(what, other);
}

TEST_P(CodedInStreamApart, TellCountsThatDifferInTheLastRound) {
  ASSERT_NO_FATAL_FAILURE(load(Codec::Q8));
  const Operation what{
      .count = kLongCount, .timeout_ns = 500'000'000, .codec = Codec::Q8, .blocks = 1};
  Operation other = what;
  --other.count;
  expect_mismatch(what, other);
}

constexpr auto kRanksName = [](const testing::TestParamInfo<std::uint32_t>& test) {
  return std::to_string(test.param) + "Ranks";
};
INSTANTIATE_TEST_SUITE_P(Ranks, CodedInStream, testing::Values(2U, 3U, 4U, 8U), kRanksName);
INSTANTIATE_TEST_SUITE_P(Ranks, CodedInStreamApart, testing::Values(2U, 4U), kRanksName);

}  // namespace
}  // namespace arcomm::gpu

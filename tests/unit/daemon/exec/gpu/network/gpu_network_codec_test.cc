// Communicators of GPUs that span nodes, whose operations have a codec: what their ranks get is
// what the golden codec says, bit for bit.
#include <cstring>
#include <string>
#include <vector>

#include "daemon/plan/codec_words.h"
#include "kernels/codec/format.h"
#include "kernels/host/reference.h"
#include "tests/unit/daemon/exec/gpu/network/gpu_network_fixture.h"

namespace arcomm::test {
namespace {

class GpuNetworkCodec : public GpuNetwork {
 protected:
  using Bytes = std::vector<std::byte>;

  static OperationSpec coded(std::uint64_t count, Codec codec, ReduceOp op = ReduceOp::Sum) {
    OperationSpec called = all_reduce_of(count, DType::Float32, op);
    called.codec = codec;
    return called;
  }
  static float sample(std::size_t rank, std::uint64_t i) {
    return static_cast<float>((i * 977 + rank * 131) % 5003) / 7 - 300;
  }

  // All ranks' inputs of a node encoded together, then all nodes' blocks decoded and added.
  static Bytes expected(const OperationSpec& called, const std::vector<std::uint32_t>& where) {
    std::vector<std::vector<float>> inputs(where.size());
    std::vector<Bytes> parts;
    AllReduceArgs args = AllReduceArgs::among(0, called.send_count, called.dtype, called.op);
    args.codec = called.codec;
    args.divisor = static_cast<std::uint32_t>(where.size());
    args.num_outputs = 1;
    for (const std::uint32_t node : nodes_of(where)) {
      args.stage = ReduceStage::Partial;
      args.num_inputs = 0;
      for (std::size_t rank = 0; rank < where.size(); ++rank) {
        if (where[rank] != node) continue;
        for (std::uint64_t i = 0; i < called.send_count; ++i)
          inputs[rank].push_back(sample(rank, i));
        args.inputs[args.num_inputs++] = inputs[rank].data();
      }
      args.outputs[0] = parts.emplace_back(coded_bytes(called.codec, called.send_count)).data();
      reference::all_reduce_range(args, 0, called.send_count);
    }
    Bytes result(called.send_bytes());
    args.stage = ReduceStage::Final;
    args.num_inputs = static_cast<std::uint32_t>(parts.size());
    for (std::size_t node = 0; node < parts.size(); ++node) args.inputs[node] = parts[node].data();
    args.outputs[0] = result.data();
    reference::all_reduce_range(args, 0, called.send_count);
    return result;
  }

  void expect_golden(const std::vector<GpuRank*>& ranks, const OperationSpec& called,
                     bool in_place = false) {
    SCOPED_TRACE(std::string(text_of(called.codec)) + " of " + std::to_string(called.send_count));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (std::uint64_t i = 0; i < called.send_count; ++i)
        ranks[rank]->send()[i] = sample(rank, i);
      const Result<PlanId> plan =
          nodes_[where_[rank]]->try_plan(*ranks[rank], called, std::chrono::seconds(60), in_place);
      ASSERT_TRUE(plan.ok()) << plan.error().to_string();
      ranks[rank]->start(*plan, LaunchPath::Launched);
    }
    const Bytes right = expected(called, where_);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      ASSERT_TRUE(ranks[rank]->wait(LaunchPath::Launched)) << "rank " << rank;
      const float* const seen = in_place ? ranks[rank]->send() : ranks[rank]->recv();
      ASSERT_EQ(std::memcmp(seen, right.data(), right.size()), 0) << "rank " << rank;
    }
  }
};

TEST_F(GpuNetworkCodec, EveryCodecGivesTheGoldenOnesBitsAtEverySize) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  for (const Codec codec : kRealCodecs) {
    for (const std::uint64_t count : {1ull, 33ull, 10'000ull, 100'003ull})
      ASSERT_NO_FATAL_FAILURE(expect_golden(ranks, coded(count, codec, ReduceOp::Avg)));
  }
}

TEST_F(GpuNetworkCodec, ThreeNodesDoAndInPlaceTooAndBetweenOperationsWithoutOne) {
  start(3);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 3u);
  ASSERT_NO_FATAL_FAILURE(expect_golden(ranks, coded(300'001, Codec::Q6Rotated)));
  all_reduce(ranks, plans_for(ranks, 5000), 5000, 1);
  ASSERT_NO_FATAL_FAILURE(expect_golden(ranks, coded(200'000, Codec::Q4), true));
}

TEST_F(GpuNetworkCodec, SeveralRanksOfANodeAreAddedBeforeTheyAreEncoded) {
  start(2);
  const auto ranks = group({0, 0, 1});
  ASSERT_EQ(ranks.size(), 3u);
  ASSERT_NO_FATAL_FAILURE(expect_golden(ranks, coded(100'003, Codec::Q8, ReduceOp::Avg)));
  ASSERT_NO_FATAL_FAILURE(expect_golden(ranks, coded(40'000, Codec::Fp8), true));
}

TEST_F(GpuNetworkCodec, TheFlightRecorderHasWhatTravelled) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_NO_FATAL_FAILURE(expect_golden(ranks, coded(100'000, Codec::Q4)));
  for (const auto& node : nodes_) {
    const auto is_done = [&] {
      const FlightLog log = node->recorded();
      return !log.operations.empty() && log.operations.back().done_ns != 0;
    };
    ASSERT_TRUE(node->eventually(is_done));
    const FlightLog log = node->recorded();
    EXPECT_EQ(log.operations.back().codec, Codec::Q4);
    ASSERT_EQ(log.network.size(), 1u);
    EXPECT_EQ(log.network[0].sent_bytes, coded_bytes(Codec::Q4, 100'000));
    EXPECT_EQ(log.network[0].received_bytes, coded_bytes(Codec::Q4, 100'000));
  }
}

TEST_F(GpuNetworkCodec, AnErrorClassComesToTheSameCodecOnAllRanks) {
  start(2);
  const auto ranks = group({0, 1, 1});
  ASSERT_EQ(ranks.size(), 3u);
  constexpr ErrorClass kWanted{.least_snr_db = 30};
  constexpr std::uint64_t kCount = 20'000;
  for (const GpuRank* rank : ranks) {
    EXPECT_EQ(rank->launches, ranks[0]->launches);
    EXPECT_EQ(rank->launches.codec_for(kWanted, {.bytes = kCount * sizeof(float)}), Codec::Q6);
    EXPECT_EQ(rank->launches.codec_for(kWanted, {.bytes = 1024}), Codec::None)
        << "so small that it gains nothing";
  }
  OperationSpec called = coded(kCount, Codec::Q6);
  called.codec_origin = CodecOrigin::ErrorClass;
  ASSERT_NO_FATAL_FAILURE(expect_golden(ranks, called));
}

// What the nodes have agreed on counts, whatever their own settings say.
TEST_F(GpuNetworkCodec, WhereOneNodeAllowsNoneACodecIsRefusedOnAllRanksAtOnceAndByName) {
  start(2);
  policy_.gpu_codecs = false;
  policy_.no_gpu_codecs_on = "node-b (10.0.0.2:7400)";
  const auto ranks = group({0, 1, 1});
  ASSERT_EQ(ranks.size(), 3u);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    GpuNode& node = *nodes_[where_[rank]];
    EXPECT_EQ(ranks[rank]->launches, ranks[0]->launches);
    for (const Codec codec : kRealCodecs) {
      EXPECT_FALSE(ranks[rank]->launches.takes_codec({.bytes = 1 << 20, .codec = codec}));
      // Waits for nobody: the deadline is a minute.
      const Result<PlanId> plan =
          node.try_plan(*ranks[rank], coded(1000, codec), std::chrono::seconds(60));
      ASSERT_FALSE(plan.ok());
      EXPECT_EQ(plan.error().reason, Reason::Unsupported);
      EXPECT_NE(
          plan.error().message.find(std::string(text_of(codec)) + " (number " +
                                    std::to_string(static_cast<unsigned>(codec)) +
                                    ") here: node node-b (10.0.0.2:7400) does not allow codecs"),
          std::string::npos)
          << plan.error().message;
    }
    const auto mailbox = await<MailboxDescriptors>([&](auto done) {
      node.worker().export_mailbox(ranks[rank]->client->id(), ranks[rank]->member, done);
    });
    ASSERT_TRUE(mailbox.ok());
    EXPECT_EQ(mailbox->why_no_codecs, why_no_codecs(policy_)) << "what the library says";
    EXPECT_EQ(node.inspect().communicators[0].why_no_codecs, why_no_codecs(policy_));
  }
  all_reduce(ranks, plans_for(ranks, 5000), 5000, 1);
}

TEST_F(GpuNetworkCodec, RanksThatNameDifferentCodecsAreAMismatch) {
  start(2);
  const auto ranks = group();
  ASSERT_EQ(ranks.size(), 2u);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Result<PlanId> plan = nodes_[rank]->try_plan(
        *ranks[rank], coded(1000, rank == 0 ? Codec::Q8 : Codec::Fp8), std::chrono::seconds(60));
    ASSERT_TRUE(plan.ok());
    ranks[rank]->start(*plan, LaunchPath::Launched);
  }
  for (const GpuRank* rank : ranks)
    EXPECT_EQ(name_of(reason_from(rank->closed().reason)), name_of(Reason::Mismatch));
}

}  // namespace
}  // namespace arcomm::test

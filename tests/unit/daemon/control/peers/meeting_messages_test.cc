// What other daemons say about meetings: wrong, late, twice, too much.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/unit/daemon/control/peers/simulated_nodes.h"

namespace arcomm::test {
namespace {

TEST(RootMeetings, DropsWhatIsNoMessage) {
  SimulatedNet net(2);
  const PeerNode from = net.node(1).self();
  v1::AnnounceRequest request;
  EXPECT_EQ(net.node(0).root->announced(from, request).error().code, ErrorCode::InvalidArgument);
  request.mutable_unique_id()->assign(128, 'x');
  for (const int ranks : {-1, 0, kMaxRanks + 1, 1 << 30}) {
    request.set_ranks(ranks);
    EXPECT_FALSE(net.node(0).root->announced(from, request));
  }
  request.set_ranks(2);
  for (const int rank : {-1, 2, 1 << 30}) {
    request.clear_callers();
    request.add_callers()->set_rank(rank);
    EXPECT_FALSE(net.node(0).root->announced(from, request));
  }
  request.clear_callers();
  request.add_callers()->set_rank(1);
  request.add_callers()->set_rank(1);
  EXPECT_FALSE(net.node(0).root->announced(from, request));
  EXPECT_EQ(net.node(0).root->size(), 0u);
}

TEST(RootMeetings, DropsAnnouncementsThatComeLateOrTwice) {
  SimulatedNet net(2);
  const PeerNode from = net.node(1).self();
  v1::AnnounceRequest request;
  request.mutable_unique_id()->assign(128, 'x');
  request.set_ranks(2);
  v1::AnnounceRequest::Caller& caller = *request.add_callers();
  caller.set_rank(1);
  caller.set_remaining_ms(1000);
  v1::AnnounceRequest gone = request;
  gone.clear_callers();
  request.set_version(1);
  gone.set_version(2);
  EXPECT_TRUE(net.node(0).root->announced(from, gone));
  EXPECT_TRUE(net.node(0).root->announced(from, request));
  EXPECT_EQ(net.node(0).root->size(), 0u) << "it has gone already";
  request.set_version(3);
  EXPECT_TRUE(net.node(0).root->announced(from, request));
  EXPECT_TRUE(net.node(0).root->announced(from, request));
  EXPECT_EQ(net.node(0).root->size(), 1u);
  net.run_for(milliseconds(1060));
  EXPECT_EQ(net.node(0).root->size(), 0u) << "and is not kept beyond the callers' time";
}

TEST(RootMeetings, AreBoundedForEachUserAndEachPeer) {
  SimulatedNet net(2);
  const PeerNode from = net.node(1).self();
  v1::AnnounceRequest request;
  request.set_ranks(2);
  request.add_callers()->set_rank(1);
  request.mutable_callers(0)->set_remaining_ms(100000);
  for (std::size_t i = 0; i < 10000; ++i) {
    request.mutable_unique_id()->assign(128, 'x');
    std::memcpy(request.mutable_unique_id()->data(), &i, sizeof(i));
    request.set_uid(static_cast<std::uint32_t>(i < 2000 ? 1000 : i));
    request.set_version(1);
    EXPECT_TRUE(net.node(0).root->announced(from, request));
    if (i == 1999) {
      EXPECT_EQ(net.node(0).root->size(), RootMeetings::kMostOfUser);
    }
  }
  EXPECT_EQ(net.node(0).root->size(), RootMeetings::kMostOfPeer);
  net.node(0).root->peer_lost(from, error(ErrorCode::Unavailable, Reason::None, "test"));
  EXPECT_EQ(net.node(0).root->size(), 0u);
  EXPECT_FALSE(net.node(0).root->next_tick());
}

TEST(NodeMeetings, APolicyArrivesAsItWasSent) {
  const NetworkPolicy policy{.order = NetOrder::OfRing,
                             .partials = NetPartials::DType,
                             .algorithm = NetAlgorithm::Direct,
                             .ring = {.chunk_bytes = 1,
                                      .num_chunks = 2,
                                      .max_bdp_bytes = 3,
                                      .min_shard_bytes = 4,
                                      .bidirectional_max_bytes = -1,
                                      .max_blocks = 6,
                                      .threads = 7},
                             .step_bytes = 8 << 10,
                             .gpu_lanes = 9,
                             .gpu_codecs = false,
                             .no_gpu_codecs_on = "node-b (10.0.0.2:7400)",
                             .coding_rules = 7,
                             .link_bytes_per_second = 8};
  const Result<NetworkPolicy> read_back = read(write(policy));
  ASSERT_TRUE(read_back);
  EXPECT_EQ(*read_back, policy);
  EXPECT_EQ(*read(write(NetworkPolicy{})), NetworkPolicy{});
  EXPECT_EQ(read(v1::NetworkPolicy{})->step_bytes, kUsualStepBytes);
}

TEST(NodeMeetings, APolicyOfARootThatKnowsNoGpuCodecsAllowsNone) {
  const Result<NetworkPolicy> old = read(v1::NetworkPolicy{});
  ASSERT_TRUE(old);
  EXPECT_FALSE(old->gpu_codecs);
  EXPECT_EQ(old->no_gpu_codecs_on, "");
  EXPECT_EQ(old->coding_rules, 0u) << "nor do error classes get any";
  EXPECT_EQ(old->link_bytes_per_second, 0u);
  v1::NetworkPolicy long_winded;
  long_winded.set_no_gpu_codecs_on(std::string(100'000, 'x'));
  EXPECT_LT(read(long_winded)->no_gpu_codecs_on.size(), 1000u);
}

TEST(NodeMeetings, FormThatIsNoPlanIsRefusedAndTouchesNothing) {
  SimulatedNet net(2);
  net.node(1).call(id_at(net, 0), 1, 2, milliseconds(5000));
  net.run_for(milliseconds(10));
  v1::FormRequest good;
  const UniqueIdBytes id = id_at(net, 0);
  good.mutable_unique_id()->assign(reinterpret_cast<const char*>(id.data()), id.size());
  good.set_epoch(1);
  good.set_communicator(7);
  good.set_remaining_ms(1000);
  good.add_rank_devices("host:0");
  good.add_rank_devices("host:0");
  for (std::size_t node = 0; node < 2; ++node) {
    v1::FormRequest::Node& one = *good.add_nodes();
    one.mutable_identity()->set_instance(net.node(node).self().instance);
    one.mutable_identity()->set_address(net.node(node).self().address);
    one.add_ranks(static_cast<int>(node));
  }
  const std::vector<std::function<void(v1::FormRequest&)>> spoilt = {
      [](auto& form) { form.clear_unique_id(); },
      [](auto& form) { form.set_epoch(0); },
      [](auto& form) { form.set_communicator(0); },
      [](auto& form) { form.clear_rank_devices(); },
      [](auto& form) { form.add_rank_devices("host:0"); },
      [](auto& form) { form.mutable_nodes(0)->add_ranks(1); },
      [](auto& form) { form.mutable_nodes(0)->set_ranks(0, 2); },
      [](auto& form) { form.mutable_nodes(0)->set_ranks(0, -1); },
      [](auto& form) { form.mutable_nodes()->SwapElements(0, 1); },
      [](auto& form) { form.mutable_nodes(1)->mutable_identity()->set_instance(99); },
      [](auto& form) { form.mutable_nodes(0)->mutable_identity()->set_instance(0); },
      [](auto& form) { form.mutable_policy()->set_algorithm(77); },
      [](auto& form) { form.mutable_policy()->set_num_chunks(1 << 20); },
      [](auto& form) { form.mutable_policy()->set_threads(1025); },
      [](auto& form) { form.mutable_policy()->set_max_blocks(1025); },
      [](auto& form) { form.mutable_policy()->set_chunk_bytes(~0ull); },
      [](auto& form) { form.mutable_policy()->set_step_bytes(~0ull); },
      [](auto& form) { form.mutable_nodes()->RemoveLast(); },
  };
  for (std::size_t i = 0; i < spoilt.size(); ++i) {
    v1::FormRequest form = good;
    spoilt[i](form);
    bool refused = false;
    net.node(1).here->form(net.node(0).self(), form,
                           [&](const Result<v1::FormReply>& reply) { refused = !reply; });
    EXPECT_TRUE(refused) << i;
  }
  // The same from a node where it does not meet, and one that has been abandoned.
  bool changed = false;
  net.node(1).here->form(net.node(1).self(), good, [&](const Result<v1::FormReply>& reply) {
    changed = reply && reply->changed();
  });
  EXPECT_TRUE(changed);
  v1::AbandonRequest abandon;
  abandon.set_unique_id(good.unique_id());
  abandon.set_epoch(1);
  abandon.set_communicator(7);
  EXPECT_TRUE(net.node(1).here->abandon(net.node(0).self(), abandon));
  bool refused = false;
  net.node(1).here->form(net.node(0).self(), good,
                         [&](const Result<v1::FormReply>& reply) { refused = !reply; });
  EXPECT_TRUE(refused);
  EXPECT_EQ(net.node(1).answer(0), nullptr);
  EXPECT_TRUE(net.node(1).members.empty());
}

TEST(NodeMeetings, ARefusalThatComesLateSparesTheCallsThatCameAfterIt) {
  SimulatedNet net(2);
  const UniqueIdBytes id = id_at(net, 0);
  net.node(1).call(id, 1, 2, kSoon);
  net.run_for(milliseconds(10));
  net.node(1).rendezvous->cancel(1);
  net.node(1).call(id, 1, 2, kSoon);
  net.run_for(milliseconds(10));
  v1::AbandonRequest late;
  late.mutable_unique_id()->assign(reinterpret_cast<const char*>(id.data()), id.size());
  late.set_version(1);
  late.set_code(static_cast<std::uint32_t>(ErrorCode::InvalidArgument));
  EXPECT_TRUE(net.node(1).here->abandon(net.node(0).self(), late));
  EXPECT_EQ(net.node(1).answer(1), nullptr);
  late.set_version(1000);
  EXPECT_TRUE(net.node(1).here->abandon(net.node(0).self(), late));
  EXPECT_EQ(net.node(1).answer(1)->error().code, ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace arcomm::test

// Random clients, daemons and networks (simulated_nodes.h).
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/daemon/control/peers/simulated_nodes.h"

namespace arcomm::test {
namespace {

// Whatever the network, the clients and the daemons do: each call of a daemon that lives is
// answered once, by its deadline; nobody keeps a member that no caller has; those that joined have
// one epoch and one number for one id.
std::size_t run_schedule(unsigned seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  SimulatedNet net(4, seed);
  std::mt19937 random(seed * 7919 + 1);
  const auto dice = [&random](unsigned sides) { return static_cast<unsigned>(random() % sides); };
  net.percent_lost = seed % 3 == 0 ? 0 : dice(20);
  net.percent_twice = dice(20);
  net.longest_delay = milliseconds(1 + dice(seed % 4 == 0 ? 60 : 5));
  struct Asked {
    std::size_t node;
    std::size_t call;
    SimulatedNet::Clock::time_point deadline;
    PeerId run;
    UniqueIdBytes id;
  };
  std::vector<Asked> asked;
  for (int step = 0; step < 150; ++step) {
    const std::size_t node = dice(4);
    SimulatedNode& one = net.node(node);
    switch (dice(24)) {
      case 0:
        if (one.alive && seed % 2 == 0 && dice(4) == 0) net.kill(node, milliseconds(5 + dice(50)));
        break;
      case 1:
      case 2:
        if (!one.alive) net.restart(node);
        break;
      case 3:
        if (one.alive) one.rendezvous->cancel(1 + dice(30));
        break;
      case 4:
        if (one.alive && dice(3) == 0) {
          one.rendezvous->session_gone(SessionId{dice(4), static_cast<std::uint32_t>(node + 1)}, 1,
                                       Reason::RemoteDied);
        }
        break;
      case 5:
        one.refuses =
            dice(4) == 0
                ? std::optional(error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "full"))
                : std::nullopt;
        one.waits_for_links = dice(5) == 0;
        one.forming_takes = milliseconds(dice(3) == 0 ? dice(200) : 1);
        break;
      case 6: {
        const UniqueIdBytes id = id_at(net, dice(4), static_cast<std::uint8_t>(dice(2)));
        for (std::uint64_t epoch = 1; one.alive && epoch < 12; ++epoch)
          one.rendezvous->dissolve(id, epoch);
        break;
      }
      default: {
        if (!one.alive) break;
        const UniqueIdBytes id = id_at(net, dice(4), static_cast<std::uint8_t>(dice(2)));
        const int ranks = dice(12) == 0 ? 3 : 2 + static_cast<int>(step / 50);
        const milliseconds timeout(50 + dice(800));
        const Rank rank = dice(3) == 0 ? static_cast<Rank>(dice(static_cast<unsigned>(ranks)))
                                       : static_cast<Rank>(node) % ranks;
        const std::size_t call = one.call(id, rank, ranks, timeout);
        asked.push_back({node, call, net.now() + timeout, one.self().instance, id});
      }
    }
    net.run_for(milliseconds(dice(25)));
  }
  net.run_for(milliseconds(4000));
  std::size_t joined = 0;
  for (const Asked& one : asked) {
    const SimulatedNode& node = net.node(one.node);
    const auto& answer = *node.answers[one.call];
    if (node.self().instance != one.run || !node.alive) {
      EXPECT_LE(answer.times, 1);
      continue;
    }
    EXPECT_EQ(answer.times, 1);
    EXPECT_LE(answer.at, one.deadline + milliseconds(1)) << node.why(one.call);
    if (answer.times == 1 && answer.result->ok()) ++joined;
  }
  std::map<std::pair<UniqueIdBytes, std::uint64_t>, std::uint64_t> numbers;
  for (std::size_t i = 0; i < net.size(); ++i) {
    if (!net.node(i).alive) continue;
    std::size_t held = 0;
    for (const auto& [member, one] : net.node(i).members) {
      ++held;
      if (one.spec.communicator == 0) continue;
      const auto [number, is_new] =
          numbers.emplace(std::pair(one.spec.unique_id, one.spec.epoch), one.spec.communicator);
      EXPECT_EQ(number->second, one.spec.communicator);
    }
    std::size_t given = 0;
    for (const auto& answer : net.node(i).answers) {
      if (answer->result && answer->result->ok() &&
          net.node(i).members.contains(answer->result->value().member))
        ++given;
    }
    EXPECT_EQ(held, given) << "a member that nobody has";
    EXPECT_EQ(net.node(i).root->attempts(), 0u);
    EXPECT_EQ(net.node(i).root->size(), 0u);
    EXPECT_EQ(net.node(i).here->size(), 0u);
    EXPECT_TRUE(net.node(i).rendezvous->forming().empty());
  }
  return joined;
}

TEST(NodeMeetings, EachCallIsAnsweredOnceAndInTimeWhateverHappens) {
  std::size_t joined = 0;
  for (unsigned seed = 1; seed <= 60 && !HasFailure(); ++seed) joined += run_schedule(seed);
  EXPECT_GT(joined, 200u) << "else the schedules say little";
}

}  // namespace
}  // namespace arcomm::test

// Launched operations of several communicators on GPUs that have too few SMs for all of them: a
// model of the GPUs, which begin blocks in whatever order does the most harm.
#include "daemon/exec/gpu/launch_room.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "daemon/plan/in_stream_share.h"
#include "kernels/launch/launch_blocks.h"

namespace arcomm {
namespace {

// One operation: a kernel on each of its GPUs, whose block b waits for block b on all others.
struct Kernel {
  struct Part {
    std::uint32_t queue = 0;
    std::uint32_t begun = 0;        // blocks, in the order of their numbers
    std::set<std::uint32_t> fills;  // that have not ended
    bool is_called = true;          // else it waits behind a gate, without an SM
  };
  int communicator = 0;
  std::uint32_t blocks = 0;
  std::map<std::uint32_t, Part> parts;  // by GPU

  bool has_ended() const {
    return std::ranges::all_of(parts, [&](const auto& part) {
      return part.second.begun == blocks && part.second.fills.empty();
    });
  }
  bool is_called() const {
    return std::ranges::all_of(parts, [](const auto& part) { return part.second.is_called; });
  }
};

class ModelGpus {
 public:
  // SMs that launched kernels find where in-stream operations stand still and fill all they may.
  explicit ModelGpus(std::vector<std::uint32_t> free_sms) : free_(std::move(free_sms)) {
    preferred_.resize(free_.size());
  }
  void prefer(std::uint32_t gpu, std::vector<int> communicators) {
    preferred_[gpu] = std::move(communicators);
  }
  void launch(Kernel* kernel) {
    for (auto& [gpu, part] : kernel->parts) queues_[{gpu, part.queue}].push_back(kernel);
  }
  void withdraw(Kernel* kernel) {
    for (auto& [gpu, part] : kernel->parts) {
      free_[gpu] += static_cast<std::uint32_t>(part.fills.size());
      std::erase(queues_[{gpu, part.queue}], kernel);
    }
  }
  // Until nothing moves any more.
  void run() {
    while (begin_blocks() || end_blocks()) {
    }
  }

 private:
  bool begin_blocks() {
    bool any = false;
    for (std::uint32_t gpu = 0; gpu < free_.size(); ++gpu) {
      for (const int communicator : preferred_[gpu]) {
        for (auto& [place, queue] : queues_) {
          if (place.first != gpu || queue.empty() || queue.front()->communicator != communicator)
            continue;
          Kernel& first = *queue.front();
          Kernel::Part& part = first.parts.at(gpu);
          for (; part.is_called && part.begun < first.blocks && free_[gpu] > 0; any = true) {
            part.fills.insert(part.begun++);
            --free_[gpu];
          }
        }
      }
    }
    return any;
  }
  bool end_blocks() {
    bool any = false;
    for (auto& [place, queue] : queues_) {
      if (queue.empty()) continue;
      Kernel& first = *queue.front();
      const std::set<std::uint32_t> here = first.parts.at(place.first).fills;
      for (const std::uint32_t block : here) {
        if (!std::ranges::all_of(
                first.parts, [&](const auto& part) { return part.second.fills.contains(block); }))
          continue;
        for (auto& [gpu, part] : first.parts) {
          part.fills.erase(block);
          ++free_[gpu];
        }
        any = true;
      }
    }
    for (auto& [place, queue] : queues_) {
      while (!queue.empty()) {
        const Kernel::Part& part = queue.front()->parts.at(place.first);
        if (part.begun < queue.front()->blocks || !part.fills.empty()) break;
        queue.pop_front();
        any = true;
      }
    }
    return any;
  }

  std::vector<std::uint32_t> free_;
  std::vector<std::vector<int>> preferred_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<Kernel*>> queues_;  // by GPU, queue
};

// Communicators that call one operation after the other, some of them launched before the call.
class Node {
 public:
  struct Shape {
    std::vector<std::uint32_t> sms;        // of each GPU
    std::vector<std::uint32_t> in_stream;  // that clients may fill there
    bool with_room = true;                 // false: as it was
  };
  Node(Shape shape, unsigned seed) : shape_(std::move(shape)), random_(seed), gpus_(free_sms()) {
    for (const std::uint32_t sms : shape_.sms) room_.add_gpu(sms);
    for (std::uint32_t gpu = 0; gpu < shape_.sms.size(); ++gpu) {
      LaunchPlace lender{.parts = {{.gpu = gpu}}};
      room_.lend(lender, shape_.in_stream[gpu]);
      EXPECT_TRUE(room_.has_lent(lender));
    }
  }

  void add_communicator(const std::vector<LaunchPlace::Part>& parts) {
    std::uint32_t fewest = ~0U;
    for (const auto& part : parts) fewest = std::min(fewest, shape_.sms[part.gpu]);
    members_.push_back(std::make_unique<Member>());
    members_.back()->place.parts = parts;
    members_.back()->most_blocks = most_launched_blocks(fewest, kSparedSms);
  }
  // Each has called so many operations and all have ended; false: nothing moves any more.
  bool serve(int operations) {
    for (int turn = 0; turn < operations * 200; ++turn) {
      shuffle();
      bool all_done = true;
      for (std::size_t i = 0; i < members_.size(); ++i) {
        Member& member = *members_[i];
        if (member.done < operations) all_done = false;
        if (member.done < operations) act(member, static_cast<int>(i));
      }
      if (all_done) return true;
      gpus_.run();
      for (auto& member : members_) settle(*member);
    }
    return false;
  }

 private:
  struct Member {
    LaunchPlace place;
    std::uint32_t most_blocks = 0;
    std::uint32_t wanted = 0;  // blocks of what all ranks have called, and that is not launched
    std::unique_ptr<Kernel> kernel;
    int done = 0;
  };

  std::vector<std::uint32_t> free_sms() const {
    std::vector<std::uint32_t> free;
    for (std::size_t gpu = 0; gpu < shape_.sms.size(); ++gpu) {
      const std::uint32_t others = kResidentSms + shape_.in_stream[gpu];
      free.push_back(shape_.sms[gpu] > others ? shape_.sms[gpu] - others : 1);
    }
    return free;
  }
  void shuffle() {
    std::vector<int> order(members_.size());
    std::iota(order.begin(), order.end(), 0);
    for (std::uint32_t gpu = 0; gpu < shape_.sms.size(); ++gpu) {
      std::ranges::shuffle(order, random_);
      gpus_.prefer(gpu, order);
    }
  }
  void act(Member& member, int communicator) {
    if (member.kernel != nullptr) {
      for (auto& [gpu, part] : member.kernel->parts) part.is_called |= random_() % 3 == 0;
      return;
    }
    if (member.wanted == 0 && random_() % 4 == 0) return;
    const bool is_ahead = member.wanted == 0 && random_() % 3 == 0;
    if (member.wanted == 0)
      member.wanted = 1 + static_cast<std::uint32_t>(random_()) % member.most_blocks;
    const bool is_in =
        !shape_.with_room || (is_ahead ? room_.enter_ahead(member.place, member.wanted)
                                       : room_.enter(member.place, member.wanted));
    if (is_in) return launch(member, communicator, is_ahead);
    if (is_ahead) {
      member.wanted = 0;
      return;
    }
    for (auto& other : members_) {
      if (other->kernel == nullptr || other->kernel->is_called() ||
          !LaunchRoom::is_in_the_way(other->place, member.place))
        continue;
      gpus_.withdraw(other->kernel.get());
      other->kernel.reset();
      room_.leave(other->place);
    }
  }
  void launch(Member& member, int communicator, bool is_ahead) {
    member.kernel = std::make_unique<Kernel>();
    member.kernel->communicator = communicator;
    member.kernel->blocks = std::exchange(member.wanted, 0);
    for (const auto& part : member.place.parts)
      member.kernel->parts[part.gpu] = {.queue = part.queue, .fills = {}, .is_called = !is_ahead};
    gpus_.launch(member.kernel.get());
  }
  void settle(Member& member) {
    if (member.kernel == nullptr || !member.kernel->has_ended()) return;
    member.kernel.reset();
    ++member.done;
    room_.leave(member.place);
  }

  const Shape shape_;
  std::mt19937 random_;
  LaunchRoom room_;
  ModelGpus gpus_;
  std::vector<std::unique_ptr<Member>> members_;
};

// Three communicators over each pair of three GPUs, and two over all: as many as can wait for each
// other in a circle.
void add_circle(Node& node, bool share_queues) {
  const auto queue = [&](std::uint32_t own) { return share_queues && own % 2 == 0 ? 0U : own; };
  node.add_communicator({{0, queue(1)}, {1, queue(1)}});
  node.add_communicator({{1, queue(2)}, {2, queue(2)}});
  node.add_communicator({{2, queue(3)}, {0, queue(3)}});
  node.add_communicator({{0, queue(4)}, {1, queue(4)}, {2, queue(4)}});
  node.add_communicator({{0, queue(6)}, {1, queue(6)}, {2, queue(5)}});
}

class LaunchRoomOn : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  // Nothing is lent, or all that may be.
  static std::vector<Node::Shape> shapes(std::uint32_t sms) {
    const std::uint32_t all = sms > kSparedSms ? sms - kSparedSms : 0;
    return {{.sms = {sms, sms, sms}, .in_stream = {0, 0, 0}},
            {.sms = {sms, sms, sms}, .in_stream = {all, all, all}},
            {.sms = {sms, 132, 60}, .in_stream = {all / 2, 120, 0}}};
  }
};

TEST_P(LaunchRoomOn, NoNumberOfCommunicatorsHoldsEachOther) {
  for (const Node::Shape& shape : shapes(GetParam())) {
    for (const bool share_queues : {false, true}) {
      for (unsigned seed = 0; seed < 20; ++seed) {
        Node node(shape, seed);
        add_circle(node, share_queues);
        ASSERT_TRUE(node.serve(12)) << "seed " << seed << ", shared queues " << share_queues;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sms, LaunchRoomOn, ::testing::Values(4U, 24U, 60U, 112U, 132U));

// The model shows what was the matter: without places some of them wait for ever.
TEST(LaunchRoom, WhatWaitsForAnotherNodeEntersOnlyWhereNobodyWaitsForIt) {
  LaunchRoom room;
  room.add_gpu(132);
  LaunchPlace few{.parts = {{.gpu = 0, .queue = 1}}}, many{.parts = {{.gpu = 0, .queue = 2}}};
  const std::uint32_t narrow = room.narrow_room(0);
  EXPECT_FALSE(room.enter_narrow(many, narrow + 1));
  EXPECT_FALSE(many.has_place());
  EXPECT_TRUE(room.enter_narrow(few, 16));
  EXPECT_FALSE(room.enter_narrow(many, narrow)) << "beside the other it is wide";
  EXPECT_TRUE(room.enter(many, narrow)) << "and waits for nobody who is narrow";
  room.leave(many);
  room.leave(few);
}

TEST(LaunchRoom, WithoutPlacesTheyHoldEachOther) {
  for (const std::uint32_t sms : {24U, 60U, 112U, 132U}) {
    int held = 0;
    for (unsigned seed = 0; seed < 20; ++seed) {
      const std::uint32_t all = sms - kSparedSms;
      Node node({.sms = {sms, sms, sms}, .in_stream = {all, all, all}, .with_room = false}, seed);
      add_circle(node, false);
      held += node.serve(12) ? 0 : 1;
    }
    EXPECT_GT(held, 0) << sms;
  }
}

LaunchPlace place_of(std::vector<LaunchPlace::Part> parts) {
  return {.parts = std::move(parts)};
}

class LaunchRoomTest : public ::testing::Test {
 protected:
  LaunchRoomTest() {
    for (int gpu = 0; gpu < 3; ++gpu) room_.add_gpu(132);
  }
  LaunchRoom room_;
  LaunchPlace one_ = place_of({{0, 1}, {1, 1}}), other_ = place_of({{0, 2}, {1, 2}});
  LaunchPlace third_ = place_of({{0, 3}, {1, 3}}), apart_ = place_of({{2, 1}});
};

TEST_F(LaunchRoomTest, TwoLargeOnesGoBesideEachOtherWhereOneOfThemAlwaysFits) {
  EXPECT_TRUE(room_.enter(one_, 112));
  EXPECT_FALSE(one_.is_wide);
  EXPECT_TRUE(room_.enter(other_, 112));
  EXPECT_TRUE(other_.is_wide);
  EXPECT_FALSE(room_.enter(third_, 112));
  room_.leave(other_);
  EXPECT_TRUE(room_.enter(third_, 112));
}

TEST_F(LaunchRoomTest, WhatIsInStreamCountsAsIfItStoodStill) {
  room_.lend(one_, 96);
  EXPECT_TRUE(room_.has_lent(one_));
  EXPECT_EQ(room_.narrow_room(0), 132u - 10 - 96 - 1);
  EXPECT_EQ(room_.narrow_room(2), 132u - 10 - 1);
  EXPECT_TRUE(room_.enter(one_, 112));
  EXPECT_FALSE(room_.enter(other_, 26)) << "25 are left";
  EXPECT_TRUE(room_.enter(third_, 25)) << "what is small passes by";
  EXPECT_TRUE(room_.enter(apart_, 112));
  room_.leave(one_);
  EXPECT_TRUE(room_.enter(other_, 26));
  room_.take_back(one_, 96);
  EXPECT_EQ(room_.narrow_room(0), 121u);
}

TEST_F(LaunchRoomTest, WhoWaitsIsNotPassedByThoseItWouldWaitFor) {
  room_.lend(one_, 120);
  EXPECT_TRUE(room_.has_lent(one_));
  EXPECT_TRUE(room_.enter(one_, 50));
  EXPECT_FALSE(room_.enter(other_, 60));
  EXPECT_TRUE(LaunchRoom::is_in_the_way(one_, other_));
  EXPECT_FALSE(room_.enter(third_, 70));
  EXPECT_FALSE(room_.enter_ahead(one_, 50)) << "it would never end";
  room_.leave(one_);
  EXPECT_FALSE(room_.enter(third_, 70)) << "the other came first";
  EXPECT_TRUE(room_.enter(other_, 60));
  EXPECT_FALSE(LaunchRoom::is_in_the_way(one_, other_));
  room_.give_up_turn(third_);
  room_.leave(other_);
  EXPECT_TRUE(room_.enter_ahead(one_, 50));
}

TEST_F(LaunchRoomTest, ALargeOneDoesNotStandBehindASmallOneInOneQueue) {
  LaunchPlace small = place_of({{0, 0}, {1, 0}}), large = place_of({{0, 0}, {1, 4}});
  room_.lend(one_, 96);
  EXPECT_TRUE(room_.has_lent(one_));
  EXPECT_TRUE(room_.enter(small, 8));
  EXPECT_FALSE(room_.enter(large, 112));
  room_.leave(small);
  EXPECT_FALSE(room_.enter(small, 8)) << "it would be in the way again";
  EXPECT_TRUE(room_.enter(large, 112));
}

TEST_F(LaunchRoomTest, WhatWaitsForOtherNodesIsAloneInItsQueue) {
  LaunchPlace spanning = place_of({{0, 0}}), other = place_of({{0, 0}}), own = place_of({{0, 3}});
  spanning.spans_nodes = true;
  EXPECT_TRUE(room_.enter(spanning, 2));
  EXPECT_TRUE(room_.enter(own, 2));
  EXPECT_FALSE(room_.enter(other, 2)) << "it would stand behind it, and on its other GPUs not";
  EXPECT_TRUE(room_.is_wanted(spanning));
  EXPECT_FALSE(room_.is_wanted(own));
  room_.leave(spanning);
  EXPECT_TRUE(room_.enter(other, 2));
  EXPECT_FALSE(room_.enter(spanning, 2));
}

TEST(LaunchRoom, WhoWaitsBesideAHolderSharesAGpuWithItOrWithOneThatDoes) {
  constexpr std::uint32_t kBlocks = 4;
  LaunchRoom room;
  for (int gpu = 0; gpu < 3; ++gpu) room.add_gpu(11);
  LaunchPlace holder{.parts = {{.gpu = 0, .queue = 1}}},
      runs_elsewhere{.parts = {{.gpu = 2, .queue = 1}}};
  LaunchPlace waits{.parts = {{.gpu = 0, .queue = 2}, {.gpu = 1, .queue = 2}}};
  LaunchPlace waits_behind{.parts = {{.gpu = 1, .queue = 3}}};
  LaunchPlace waits_elsewhere{.parts = {{.gpu = 2, .queue = 4}}};
  ASSERT_TRUE(room.enter(holder, kBlocks) && room.enter(runs_elsewhere, kBlocks));
  ASSERT_FALSE(room.enter(waits, kBlocks));
  ASSERT_FALSE(room.enter(waits_behind, kBlocks));
  ASSERT_FALSE(room.enter(waits_elsewhere, kBlocks));
  EXPECT_EQ(room.waiting_beside(holder), (std::vector<const LaunchPlace*>{&waits, &waits_behind}));
  EXPECT_EQ(room.waiting_beside(runs_elsewhere), std::vector<const LaunchPlace*>{&waits_elsewhere});
}

TEST_F(LaunchRoomTest, WhoWantsSmsOfNarrowOnesInVainIsHeardOnce) {
  EXPECT_TRUE(room_.enter(one_, 100));
  EXPECT_FALSE(room_.take_wish());
  room_.lend(other_, 96);
  EXPECT_FALSE(room_.has_lent(other_));
  EXPECT_TRUE(room_.take_wish());
  EXPECT_FALSE(room_.take_wish());
  room_.leave(one_);
  EXPECT_TRUE(room_.has_lent(other_));
  EXPECT_FALSE(room_.take_wish());
}

TEST_F(LaunchRoomTest, WhatRunsHasItsRoomUntilItEndsWhoeverWantsSmsForInStreamOperations) {
  EXPECT_TRUE(room_.enter(one_, 100));
  room_.lend(other_, 24);
  EXPECT_FALSE(room_.has_lent(other_)) << "it may be about to begin";
  EXPECT_TRUE(room_.enter(third_, 20));
  EXPECT_TRUE(third_.is_wide) << "those who come have less room, so that the lender's turn comes";
  room_.leave(third_);
  room_.leave(one_);
  EXPECT_TRUE(room_.has_lent(other_));
  EXPECT_TRUE(room_.enter(one_, 100));
  EXPECT_TRUE(one_.is_wide) << "97 are left";
  room_.lend(third_, 96);
  EXPECT_TRUE(room_.has_lent(third_)) << "what is wide has no room of its own";
}

}  // namespace
}  // namespace arcomm

// Communicators of several nodes that have no room beside each other: a model of the nodes and of
// the messages between them, which come in whatever order does the most harm.
#include "daemon/exec/gpu/network/node_places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace arcomm {
namespace {

struct Said {
  std::uint64_t communicator = 0;
  net::MessageKind kind = net::MessageKind::Offer;
  std::uint64_t seq = 0, turn = 0;
  bool is_placed = false;
};
// By sender and receiver, each in order.
using Wires = std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<Said>>;

constexpr PeerId kFirstPeer = 100;
constexpr std::uint32_t kBlocks = 4;  // there is room for a place of one of several

class ModelLinks final : public Links {
 public:
  ModelLinks(std::uint32_t here, Wires& wires) : here_(here), wires_(wires) {}
  void send(PeerId peer, net::MessageKind kind, const net::FrameHeader& names,
            std::initializer_list<std::span<const std::byte>>) override {
    put(peer, {.communicator = names.communicator, .kind = kind, .seq = names.seq});
  }
  void put(PeerId peer, const Said& said) {
    wires_[{here_, static_cast<std::uint32_t>(peer - kFirstPeer)}].push_back(said);
    said_ += said.kind == net::MessageKind::Offer ? 0 : 1;
  }
  net::Progress post(PeerId, const net::Frame&, net::OnLoan&) override {
    return net::Progress::Failed;
  }
  net::Regions* regions() override { return nullptr; }
  int said() const { return said_; }  // but for offers

 private:
  const std::uint32_t here_;
  Wires& wires_;
  int said_ = 0;
};

// A node's part of a communicator; its operations follow each other, and the next is called while
// one runs.
struct Part {
  std::uint64_t number = 0;
  std::uint32_t here = 0;  // among its nodes
  std::vector<std::uint32_t> nodes;
  LaunchPlace place;
  std::unique_ptr<NodePlaces> places;
  std::uint64_t seq = 0, called_to = 0;
  bool has_begun = false;                                                 // seq has, and not ended
  std::map<std::uint64_t, std::map<std::uint32_t, std::uint64_t>> turns;  // by seq and node

  bool is_agreed() const {
    const auto found = turns.find(seq);
    return !has_begun && found != turns.end() && found->second.size() == nodes.size();
  }
  std::pair<std::uint64_t, std::uint64_t> age() const {
    std::uint64_t highest = 0;
    for (const auto& [node, turn] : turns.at(seq)) highest = std::max(highest, turn);
    return {highest, number};
  }
};

struct ModelNode {
  ModelNode(std::uint32_t here, Wires& wires) : links(here, wires) { room.add_gpu(11); }
  LaunchRoom room;
  ModelLinks links;
  std::uint64_t clock = 0;
  // Of one communicator that is on this node alone.
  LaunchPlace local = {.parts = {{.gpu = 0, .queue = 99}}};
  std::uint64_t ended = 0;
  std::vector<std::unique_ptr<Part>> parts;
};

class Model {
 public:
  Model(std::uint32_t nodes, unsigned seed) : random_(seed) {
    for (std::uint32_t node = 0; node < nodes; ++node)
      nodes_.push_back(std::make_unique<ModelNode>(node, wires_));
  }

  void add_communicator(const std::vector<std::uint32_t>& nodes) {
    CommunicatorSpec spec;
    spec.communicator = ++last_number_;
    for (const std::uint32_t node : nodes)
      spec.nodes.push_back({.peer = kFirstPeer + node, .name = std::to_string(node)});
    for (std::uint32_t index = 0; index < nodes.size(); ++index) {
      spec.here = index;
      ModelNode& node = *nodes_[nodes[index]];
      auto part = std::make_unique<Part>();
      part->number = spec.communicator;
      part->here = index;
      part->nodes = nodes;
      part->place.parts = {{.gpu = 0, .queue = static_cast<std::uint32_t>(spec.communicator)}};
      part->place.spans_nodes = true;
      part->places = std::make_unique<NodePlaces>(
          NodePlaces::Parts{.spec = spec,
                            .place = part->place,
                            .room = node.room,
                            .links = node.links,
                            .is_in_queues = [part = part.get()] { return part->has_begun; }});
      node.parts.push_back(std::move(part));
    }
  }
  // That node does not call it before all others have ended.
  void let_be_late(std::uint64_t communicator, std::uint32_t node) { late_ = {communicator, node}; }

  // All have ended so many operations, and each node so many of its own; false: not within so many
  // moves.
  bool run(std::uint64_t operations, std::uint64_t locals) {
    operations_ = operations;
    locals_ = locals;
    for (int move = 0; move < 200'000; ++move) {
      if (random_() % 2 == 0) {
        deliver();
      } else {
        act(*nodes_[random_() % nodes_.size()]);
      }
      if (move % 64 != 0) continue;
      if (all_ended(late_.first)) late_ = {};
      if (all_ended(0)) return true;
    }
    return false;
  }
  // But for offers.
  int said() const {
    int sum = 0;
    for (const auto& node : nodes_) sum += node->links.said();
    return sum;
  }

 private:
  bool all_ended(std::uint64_t but) const {
    return std::ranges::all_of(nodes_, [&](const auto& node) {
      return node->ended == locals_ && std::ranges::all_of(node->parts, [&](const auto& part) {
               return part->seq == operations_ || (but != 0 && part->number == but);
             });
    });
  }
  void deliver() {
    std::vector<std::deque<Said>*> full;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> ends;
    for (auto& [from_to, wire] : wires_) {
      if (wire.empty()) continue;
      full.push_back(&wire);
      ends.push_back(from_to);
    }
    if (full.empty()) return;
    const std::size_t which = random_() % full.size();
    const Said said = full[which]->front();
    full[which]->pop_front();
    const auto [from, to] = ends[which];
    ModelNode& node = *nodes_[to];
    Part& part = **std::ranges::find(node.parts, said.communicator, &Part::number);
    const auto index =
        static_cast<std::uint32_t>(std::ranges::find(part.nodes, from) - part.nodes.begin());
    if (said.kind == net::MessageKind::Offer) {
      node.clock = std::max(node.clock, said.turn);
      part.turns[said.seq][index] = said.turn;
      part.places->offer_came(index, said.seq, said.is_placed);
    } else {
      const Status taken = part.places->receive(index, said.kind, said.seq);
      EXPECT_TRUE(taken.ok()) << taken.error().to_string();
    }
  }
  void call(ModelNode& node, Part& part) {
    const std::uint64_t seq = part.called_to++;
    const std::uint64_t turn = ++node.clock;
    const bool is_placed = part.places->offer(seq, kBlocks, seq == part.seq);
    part.turns[seq][part.here] = turn;
    for (const std::uint32_t other : part.nodes) {
      if (other == part.nodes[part.here]) continue;
      node.links.put(
          kFirstPeer + other,
          {.communicator = part.number, .seq = seq, .turn = turn, .is_placed = is_placed});
    }
  }
  // As GpuNetwork.
  void act(ModelNode& node) {
    Part& part = *node.parts[random_() % node.parts.size()];
    const bool is_late = late_ == std::pair(part.number, part.nodes[part.here]);
    if (part.called_to < std::min(part.seq + 2, operations_) && !is_late && random_() % 2 == 0) {
      call(node, part);
    } else if (part.is_agreed()) {
      if (part.places->enter(part.seq, kBlocks) && part.places->may_begin(part.seq)) {
        part.places->begin(part.seq);
        part.has_begun = true;
      }
    } else if (part.has_begun && has_begun_everywhere(part)) {
      part.has_begun = false;
      part.turns.erase(part.seq);
      part.places->ended(part.seq++);
    }
    if (random_() % 4 == 0) act_locally(node);
    for (const auto& holder : node.parts) recall(node, *holder);
  }
  void act_locally(ModelNode& node) const {
    if (node.local.has_place()) {
      node.room.leave(node.local);
      ++node.ended;
    } else if (node.ended < locals_) {
      node.room.enter(node.local, kBlocks);
    }
  }
  static void recall(const ModelNode& node, Part& holder) {
    if (!node.room.is_wanted(holder.place) || !holder.places->may_recall()) return;
    const bool waits_for_older =
        holder.is_agreed() && std::ranges::none_of(node.parts, [&](auto& one) {
          return one->is_agreed() && one->place.turn != 0 && one->age() < holder.age();
        });
    if (!waits_for_older) holder.places->recall();
  }
  bool has_begun_everywhere(const Part& part) const {
    return std::ranges::all_of(part.nodes, [&](std::uint32_t node) {
      const Part& there = **std::ranges::find(nodes_[node]->parts, part.number, &Part::number);
      return there.seq > part.seq || (there.seq == part.seq && there.has_begun);
    });
  }

  std::mt19937 random_;
  Wires wires_;
  std::vector<std::unique_ptr<ModelNode>> nodes_;
  std::uint64_t last_number_ = 0, operations_ = 0, locals_ = 0;
  std::pair<std::uint64_t, std::uint32_t> late_;  // communicator, node
};

void add_circle(Model& model) {
  for (const auto& nodes : std::vector<std::vector<std::uint32_t>>{
           {0, 1}, {1, 2}, {2, 3}, {3, 0}, {0, 1, 2}, {3, 1, 2}, {1, 0, 3, 2}, {2, 0}})
    model.add_communicator(nodes);
}

TEST(NodePlaces, CommunicatorsOfAnyNodesRunInWhateverOrderMessagesCome) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    Model model(4, seed);
    add_circle(model);
    ASSERT_TRUE(model.run(10, 50)) << "seed " << seed;
  }
}

TEST(NodePlaces, OneWhoseNodeCallsLastOfAllHoldsUpNoOther) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    Model model(4, seed);
    add_circle(model);
    model.let_be_late(5 + seed % 3, 1);
    ASSERT_TRUE(model.run(5, 20)) << "seed " << seed;
  }
}

TEST(NodePlaces, NobodySaysMoreThanItsOfferWhereNobodyCompetes) {
  Model model(3, 1);
  model.add_communicator({0, 1, 2});
  ASSERT_TRUE(model.run(20, 0));
  EXPECT_EQ(model.said(), 0);
}

// Its ranks left in good order while the promise was asked back, and its daemon forgot them.
TEST(NodePlaces, OneThatNeverAnswersKeepsNoPlaceForWhatIsOver) {
  Wires wires;
  ModelNode node(0, wires);
  CommunicatorSpec spec;
  spec.nodes = {{.peer = kFirstPeer, .name = "0"}, {.peer = kFirstPeer + 1, .name = "1"}};
  LaunchPlace place{.parts = {{.gpu = 0, .queue = 1}}, .spans_nodes = true};
  NodePlaces places(
      {.spec = spec, .place = place, .room = node.room, .links = node.links, .is_in_queues = [] {
         return false;
       }});
  ASSERT_TRUE(places.offer(0, kBlocks, true));
  EXPECT_FALSE(node.room.enter(node.local, kBlocks));
  places.recall();
  ArrivalPool pool(1);
  const ArrivalBoard nothing_open(pool, 1);
  EXPECT_TRUE(places.is_forgotten(nothing_open));
  places.give_up();
  EXPECT_FALSE(place.is_promised);
  EXPECT_TRUE(node.room.enter(node.local, kBlocks));
  EXPECT_TRUE(places.receive(1, net::MessageKind::Recalled, 0).ok()) << "it may answer after all";
}

TEST(NodePlaces, WhatNobodyAskedForIsTheOtherNodesFault) {
  Wires wires;
  ModelNode node(0, wires);
  LaunchPlace place{.parts = {{.gpu = 0, .queue = 1}}};
  CommunicatorSpec spec;
  spec.nodes = {{.peer = kFirstPeer, .name = "node-a"}, {.peer = kFirstPeer + 1, .name = "node-b"}};
  NodePlaces places(
      {.spec = spec, .place = place, .room = node.room, .links = node.links, .is_in_queues = [] {
         return false;
       }});
  const Status unasked = places.receive(1, net::MessageKind::Recalled, 0);
  ASSERT_FALSE(unasked.ok());
  EXPECT_NE(unasked.error().message.find("node-b"), std::string::npos);
  EXPECT_TRUE(places.offer(0, kBlocks, true));
  places.recall();
  const Status begun = places.receive(1, net::MessageKind::Recalled, 7);
  ASSERT_FALSE(begun.ok());
  EXPECT_NE(begun.error().message.find("seq 7"), std::string::npos);
  ASSERT_TRUE(places.receive(1, net::MessageKind::Recalled, 0).ok());
  EXPECT_FALSE(place.has_place());
}

}  // namespace
}  // namespace arcomm

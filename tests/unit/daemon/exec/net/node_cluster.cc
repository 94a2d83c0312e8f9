#include "tests/unit/daemon/exec/net/node_cluster.h"

#include <algorithm>
#include <cstring>

#include "daemon/exec/clock.h"
#include "daemon/plan/network/network_choice.h"
#include "daemon/plan/network/network_payload.h"
#include "daemon/plan/network/network_shards.h"
#include "daemon/plan/network/network_stages.h"
#include "kernels/host/reference.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kFarNs = 3'600'000'000'000;

void fill(std::vector<std::byte>& bytes, DType dtype, std::mt19937& random) {
  std::uniform_real_distribution<float> value(-2.0F, 2.0F);
  for (std::size_t at = 0; at < bytes.size(); at += size_of(dtype)) {
    if (dtype == DType::Float64) {
      const auto element = static_cast<double>(value(random));
      std::memcpy(&bytes[at], &element, sizeof element);
    } else if (dtype == DType::Float32) {
      const float element = value(random);
      std::memcpy(&bytes[at], &element, sizeof element);
    } else if (dtype == DType::BFloat16 || dtype == DType::Float16) {
      // Finite: neither all ones in the exponent nor far apart.
      const auto element = static_cast<std::uint16_t>((random() & 0x83ff) | 0x3c00);
      std::memcpy(&bytes[at], &element, sizeof element);
    } else {
      for (std::size_t i = 0; i < size_of(dtype); ++i)
        bytes[at + i] = static_cast<std::byte>(random() & 0xff);
    }
  }
}

// What `bytes` of result hold.
std::vector<std::byte> reduce(const ReduceAs& as, std::uint64_t count, std::uint32_t divisor,
                              const std::vector<const std::byte*>& inputs, std::size_t bytes,
                              Codec codec = Codec::None) {
  std::vector<std::byte> result(bytes);
  AllReduceArgs args;
  as.tell(args);
  args.codec = codec;
  args.count = count;
  args.divisor = divisor;
  args.num_outputs = 1;
  args.outputs[0] = result.data();
  for (const std::byte* input : inputs) args.inputs[args.num_inputs++] = input;
  reference::all_reduce_range(args, 0, count);
  return result;
}

}  // namespace

std::uint32_t ClusterShape::nodes() const {
  return *std::max_element(node_of_rank.begin(), node_of_rank.end()) + 1;
}

NodeCluster::NodeCluster(const ClusterShape& shape, std::uint32_t seed)
    : shape_(shape), random_(seed), device_(HostDevice::create({}).value()) {
  fabric_ = std::make_unique<NodeFabric>(
      shape.nodes(), [this](std::uint32_t to, std::uint32_t from, net::MessageKind kind,
                            const net::FrameHeader& names, const std::vector<std::byte>& body) {
        Node& node = *nodes_[to];
        if (node.communicator == nullptr) return;
        const Status taken = node.network.receive(*node.communicator, from, kind, names, body);
        if (!taken) wrong_ = taken.error().message;
      });
  for (std::uint32_t node = 0; node < shape.nodes(); ++node) {
    worlds_.push_back(World::create(shape.node_of_rank, node).value());
    nodes_.push_back(
        std::make_unique<Node>(*device_, shape.staging_of(node), fabric_->links(node)));
  }
}

NodeCluster::~NodeCluster() {
  fabric_.reset();  // what was on loan is back first
}

Status NodeCluster::form() {
  CommunicatorSpec spec;
  spec.communicator = 77;
  spec.uid = 1000;
  spec.policy = shape_.policy;
  spec.node_of_rank = shape_.node_of_rank;
  for (std::uint32_t node = 0; node < shape_.nodes(); ++node)
    spec.nodes.push_back({NodeFabric::peer_of(node), "node-" + std::to_string(node)});
  for (std::uint32_t i = 0; i < shape_.nodes(); ++i) {
    Node& node = *nodes_[i];
    std::vector<Seat> seats(worlds_[i].seated().size());
    node.next_call.assign(seats.size(), 0);
    node.members = node.table.form({}, 1, worlds_[i], std::move(seats));
    node.communicator = node.table.find(node.members[0])->communicator;
    spec.here = i;
    ARC_RETURN_IF_ERROR(node.network.form(*node.communicator, spec));
  }
  return {};
}

void NodeCluster::call(const CollectiveCall& what) {
  const std::size_t ranks = shape_.node_of_rank.size();
  const std::size_t bytes = what.count * size_of(what.dtype);
  const Call* last = calls_.empty() ? nullptr : &calls_.back();
  const bool on_last = what.on_last && last != nullptr && last->what.count == what.count &&
                       last->what.dtype == what.dtype && last->ranks[0].recv != nullptr &&
                       !is_revoked(0);
  Call& call = calls_.emplace_back();
  call.what = what;
  call.offered.assign(nodes_.size(), false);
  call.agreed.assign(nodes_.size(), false);
  call.ranks.resize(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    RankCall& its = call.ranks[rank];
    its.input.resize(bytes);
    fill(its.input, what.dtype, random_);
    if (on_last) its.input = last->expected;
    its.send = on_last ? last->ranks[rank].recv : Memory(new std::byte[bytes]);
    if (!on_last) std::ranges::copy(its.input, its.send.get());
    its.recv = what.in_place ? its.send : Memory(new std::byte[bytes]);
    its.operation.ticket = calls_.size() - 1;
    its.operation.rank = static_cast<Rank>(rank);
    OperationSpec spec = all_reduce_of(what.count, what.dtype, what.op);
    spec.codec = what.codec;
    its.operation.signature = Signature::whole(spec);
    its.operation.send = its.send.get();
    its.operation.recv = its.recv.get();
    its.operation.admitted_ns = 1;
    its.operation.deadline_ns = now_ns() + kFarNs;
  }
  expect(call);
  called_ += ranks;
}

void NodeCluster::expect(Call& call) const {
  const auto nodes = static_cast<std::uint32_t>(nodes_.size());
  const auto ranks = static_cast<std::uint32_t>(call.ranks.size());
  const NetworkQuestion question{.count = call.what.count,
                                 .dtype = call.what.dtype,
                                 .op = call.what.op,
                                 .nodes = nodes,
                                 .one_seat_each = ranks == nodes,
                                 .codec = call.what.codec};
  const NetworkChoice choice = choose_network(question, shape_.policy);
  const std::uint64_t count = call.what.count;
  const std::size_t element = size_of(call.what.dtype);
  std::vector<std::vector<std::byte>> partials;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    std::vector<const std::byte*> inputs;
    for (const Rank rank : worlds_[node].seated())
      inputs.push_back(call.ranks[static_cast<std::size_t>(rank)].input.data());
    const bool is_input =
        inputs.size() == 1 && choice.partials == question.dtype && question.codec == Codec::None;
    partials.push_back(
        is_input ? call.ranks[static_cast<std::size_t>(worlds_[node].seated()[0])].input
                 : reduce(reduce_ranks(question, choice.partials), count, ranks, inputs,
                          partial_bytes(question, choice.partials, count), question.codec));
  }
  // Of so many elements; by owners' results, encoded once more, where they travel.
  const auto finish = [&](std::uint64_t elements, const std::vector<const std::byte*>& inputs) {
    if (question.codec == Codec::None || choice.algorithm == NetworkAlgorithm::Exchange)
      return reduce(reduce_partials(question, choice.partials), elements, ranks, inputs,
                    elements * element, question.codec);
    const std::vector<std::byte> sums =
        reduce(encode_result(question), elements, ranks, inputs,
               coded_bytes(question.codec, elements), question.codec);
    return reduce(decode_result(question), elements, ranks, {sums.data()}, elements * element,
                  question.codec);
  };
  if (choice.algorithm != NetworkAlgorithm::Ring) {
    std::vector<const std::byte*> all;
    for (const auto& partial : partials) all.push_back(partial.data());
    call.expected = finish(count, all);
    return;
  }
  // Shard s sets out from the node behind s, and is added to on its way round to s.
  call.expected.resize(count * element);
  const NetworkShards shards(question);
  for (std::uint32_t shard = 0; shard < nodes; ++shard) {
    const ElementRange range = shards.of(shard);
    if (range.empty()) continue;
    const std::uint64_t bytes = partial_bytes(question, choice.partials, range.size());
    const auto part = [&](std::uint32_t node) {
      return partials[node % nodes].data() + partial_bytes(question, choice.partials, range.first);
    };
    const std::byte* from = part(shard + 1);
    std::vector<std::byte> sum(from, from + bytes);
    for (std::uint32_t hop = 2; hop < nodes; ++hop) {
      sum = reduce(reduce_on_the_way(question, choice.partials), range.size(), ranks,
                   {sum.data(), part(shard + hop)}, bytes, question.codec);
    }
    const std::vector<std::byte> result = finish(range.size(), {sum.data(), part(shard)});
    std::ranges::copy(result,
                      call.expected.begin() + static_cast<std::ptrdiff_t>(range.first * element));
  }
}

std::span<const std::byte> NodeCluster::inline_data(const Communicator&, std::uint64_t seq,
                                                    std::uint32_t node) const {
  const Node& from = *nodes_[node];
  const auto found = from.offers.find(seq);
  if (found == from.offers.end()) return {};
  return std::as_bytes(std::span(found->second)).first(from.offer_bytes.at(seq));
}

void NodeCluster::arrive(std::uint32_t index) {
  Node& node = *nodes_[index];
  const auto seat = static_cast<std::uint32_t>(random_() % node.next_call.size());
  const std::uint64_t at = node.next_call[seat];
  if (at == calls_.size()) return;
  Call& call = calls_[at];
  const Rank rank = worlds_[index].seated()[seat];
  Operation& operation = call.ranks[static_cast<std::size_t>(rank)].operation;
  operation.member = node.members[seat];
  operation.seat = seat;
  operation.seq = at;
  ++node.next_call[seat];
  node.table.arrive(operation);
  settle(node);
  const Arrival* arrival = node.communicator->board.find(at);
  if (arrival == nullptr || arrival->state != Arrival::State::Matched) return;
  const auto data = node.network.inline_data(*node.communicator, *arrival);
  if (!data.empty()) {
    std::vector<std::uint64_t>& kept = node.offers[at];
    kept.resize((data.size() + 7) / 8);
    std::memcpy(kept.data(), data.data(), data.size());
    node.offer_bytes[at] = data.size();
    ++inlined_;
  }
  call.offered[index] = true;
}

void NodeCluster::agree(std::uint32_t index) {
  for (std::size_t at = 0; at < calls_.size(); ++at) {
    Call& call = calls_[at];
    if (call.agreed[index]) continue;
    if (!std::ranges::all_of(call.offered, [](bool has) { return has; })) return;
    call.agreed[index] = true;
    nodes_[index]->table.agree(*nodes_[index]->communicator, at);
    return;
  }
}

void NodeCluster::work(Node& node) {
  if (Communicator* ready = node.table.next_ready()) {
    Failure failure = ready->board.head()->failure;
    if (!failure.ok() ||
        node.network.start(*ready, *this, now_ns(), failure) == Backend::Started::Ended) {
      node.table.completed(*ready, failure);
    } else if (!failure.ok()) {
      node.table.revoke(*ready, failure);
    }
    settle(node);
  }
  node.network.work();
  std::vector<Outcome> outcomes;
  node.network.collect(outcomes);
  for (const Outcome& outcome : outcomes) {
    if (outcome.ended) {
      node.table.completed(*outcome.communicator, outcome.failure);
    } else {
      node.table.revoke(*outcome.communicator, outcome.failure);
      node.network.stop(*outcome.communicator);
    }
  }
  settle(node);
}

void NodeCluster::settle(Node& node) {
  while (Operation* operation = node.table.finished().pop()) answer(*operation);
  if (node.communicator->ready()) return;
  for (std::uint32_t other = 0; other < nodes_.size(); ++other) {
    if (nodes_[other]->communicator->ready() &&
        std::ranges::none_of(revoking_, [&](const auto& one) { return one.first == other; }))
      revoking_.emplace_back(other, node.communicator->revoked);
  }
}

void NodeCluster::answer(Operation& operation) {
  Call& call = calls_[operation.ticket];
  RankCall& its = call.ranks[static_cast<std::size_t>(operation.rank)];
  ++answered_;
  if (operation.outcome.ok()) {
    ++succeeded_;
    const auto differs = std::mismatch(call.expected.begin(), call.expected.end(), its.recv.get());
    if (differs.first != call.expected.end()) {
      wrong_ = "call " + std::to_string(operation.ticket) + ", rank " +
               std::to_string(operation.rank) + ": byte " +
               std::to_string(differs.first - call.expected.begin()) + " of " +
               std::to_string(call.expected.size()) + " differs";
    }
  }
  its.send = its.recv = nullptr;
}

void NodeCluster::moment() {
  const auto index = static_cast<std::uint32_t>(random_() % nodes_.size());
  switch (random_() % 8) {
    case 0:
      arrive(index);
      break;
    case 1:
      agree(index);
      break;
    case 2:
      fabric_->deliver_message(random_);
      break;
    case 3:
      if (random_() % 16 == 0 && !revoking_.empty()) {
        const auto [node, why] = revoking_.back();
        revoking_.pop_back();
        revoke(node, why);
      }
      break;
    case 4:
    case 5:
      work(*nodes_[index]);
      break;
    default:
      fabric_->step(random_);
      break;
  }
}

void NodeCluster::go_on(int moments) {
  while (moments-- > 0) moment();
}

std::string NodeCluster::run() {
  const std::uint64_t until = now_ns() + 60'000'000'000;
  while (!is_answered() && wrong_.empty()) {
    go_on(64);
    if (now_ns() > until)
      return std::to_string(called_ - answered_) + " calls of ranks were never answered";
  }
  return wrong_;
}

void NodeCluster::revoke(std::uint32_t index, const Failure& why) {
  Node& node = *nodes_[index];
  node.table.revoke(*node.communicator, why);
  settle(node);
}

std::string NodeCluster::end() {
  if (!is_answered()) return "not all calls were answered";
  for (const auto& node : nodes_) {
    if (node->communicator == nullptr) continue;
    node->network.forget(*node->communicator);
    for (const MemberId member : node->members) node->table.leave(member);
    node->communicator = nullptr;
  }
  const std::uint64_t until = now_ns() + 60'000'000'000;
  for (;;) {
    bool is_back = true;
    for (const auto& node : nodes_) {
      node->network.work();
      is_back &= node->pool.taken() == 0;
    }
    if (is_back) return {};
    if (now_ns() > until) return "staging was not given back";
    fabric_->step(random_);
  }
}

}  // namespace arcomm

#include "tests/unit/daemon/proxy/proxy_world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/args.h"
#include "kernels/codec/format.h"
#include "kernels/host/element.h"
#include "kernels/host/reference.h"

namespace arcomm::proxy {
namespace {

constexpr std::byte kUnwritten{0x77};

void store(std::byte* to, DType type, std::uint64_t value) {
  const auto put = [to](auto element) { std::memcpy(to, &element, sizeof(element)); };
  switch (type) {
    case DType::Float32:
      return put(static_cast<float>(value));
    case DType::BFloat16:
      return put(bfloat16_from_float(static_cast<float>(value)));
    case DType::Float16:
      return put(float16_from_float(static_cast<float>(value)));
    case DType::Int64:
      return put(static_cast<std::int64_t>(value));
    default:
      return put(static_cast<std::int32_t>(value));
  }
}

}  // namespace

WorldNode::WorldNode(const WorldPlan& plan, std::uint32_t number)
    : words(NetworkCall::ports_of(plan.nodes, plan.lanes)), plan_(plan), number_(number) {
  const DType type = plan.is_wide ? accumulator_of(plan.dtype) : plan.dtype;
  const std::uint64_t all = words.size();
  const auto most_bytes = static_cast<std::uint32_t>(
      plan.codec == Codec::None ? plan.chunk_elements * size_of(type)
                                : coded_bytes(plan.codec, plan.chunk_elements));
  lanes_.resize(all);
  ports_.resize(all);
  partial_.resize(plan.count * size_of(type));
  result_.resize(plan.count * size_of(plan.dtype));
  const std::uint64_t of_each =
      std::uint64_t{most_bytes} * (plan.mode == SlotMode::Offset ? plan.share : kFifoSteps);
  memory_.resize(all * of_each);
  if (plan.mode == SlotMode::Offset) {
    pool_ = std::make_unique<SharedSlots>(memory_, most_bytes, static_cast<std::uint32_t>(all));
  }
  call_ = {.partial = partial_.data(),
           .result = plan.is_in_place && type == plan.dtype ? partial_.data() : result_.data(),
           .count = plan.count,
           .timeout_ns = 0,
           .node = number,
           .nodes = plan.nodes,
           .lanes = plan.lanes,
           .divisor = plan.nodes,
           .chunk_elements = plan.chunk_elements,
           .depth = std::min(plan.mode == SlotMode::Offset ? plan.share : kFifoSteps, 4U),
           .dtype = plan.dtype,
           .op = ReduceOp::Sum,
           .is_wide = plan.is_wide,
           .codec = plan.codec,
           .ports = ports_.data()};
  for (std::uint64_t i = 0; i < all; ++i) {
    const std::span<std::byte> own = std::span(memory_).subspan(
        pool_ != nullptr ? 0 : i * of_each, pool_ != nullptr ? memory_.size() : of_each);
    Lane& lane = lanes_[i];
    lane.orders = std::make_shared<FifoOrders>();
    const auto peer = static_cast<std::uint32_t>(i / 2 % plan.nodes);
    lane.config.direction = i % 2 == 0 ? FifoDirection::Send : FifoDirection::Receive;
    lane.config.fifo = &words[i];
    lane.config.memory = {.mode = plan.mode,
                          .most_bytes = most_bytes,
                          .slots = own,
                          .pool = pool_.get(),
                          .regions = {own, partial_}};
    lane.config.lane = static_cast<std::uint32_t>(i / 2 / plan.nodes);
    lane.config.peer = static_cast<int>(peer);
    lane.config.peer_name = "node " + std::to_string(peer);
    lane.config.group = 1;
    lane.config.orders = lane.orders;
    ports_[i] = {.fifo = &words[i],
                 .memory = reinterpret_cast<unsigned char*>(own.data()),
                 .memory_bytes = own.size(),
                 .most_bytes = most_bytes,
                 .mode = plan.mode,
                 .peer = static_cast<std::int32_t>(peer),
                 .steps = &lane.steps};
  }
}

WorldNode::Lane& WorldNode::lane(std::uint32_t lane, std::uint32_t peer, FifoDirection direction) {
  return lanes_[call_.port_index(lane, peer, direction)];
}

void WorldNode::connect(ProxyEngine& engine, const std::function<Wire*(std::uint32_t)>& wire_to) {
  for (Lane& lane : lanes_) {
    const auto peer = static_cast<std::uint32_t>(lane.config.peer);
    if (peer == number_) continue;
    lane.config.wire = wire_to(peer);
    const auto added = engine.add(lane.config);
    if (!added) {
      failures.push_back(added.error().to_string());
      return;
    }
    fifos.push_back(*added);
  }
}

// Sums of 16-bit inputs are exact; those of wide partials are not when rounded on the way.
std::uint64_t WorldNode::value(std::uint32_t node, std::uint64_t element) const {
  const std::uint64_t mixed = element * 977 + node * 131 + operations * 29;
  return plan_.is_wide ? mixed % 5000 : mixed % 61;
}

void WorldNode::begin(std::uint64_t timeout_ns, std::uint64_t deadline_ns,
                      const std::function<std::uint64_t()>& clock,
                      const std::function<void()>& wake) {
  ++operations;
  const DType type = plan_.is_wide ? accumulator_of(plan_.dtype) : plan_.dtype;
  for (std::uint64_t i = 0; i < plan_.count; ++i)
    store(partial_.data() + i * size_of(type), type, value(number_, i));
  std::fill(result_.begin(), result_.end(), kUnwritten);
  call_.timeout_ns = timeout_ns;
  clock_ = &clock;
  wake_ = &wake;
  is_ordered = false;
  for (Lane& lane : lanes_) lane.first = lane.steps;
  if (!plan_.is_early) order(deadline_ns);
  launch();
}

void WorldNode::order(std::uint64_t deadline_ns) {
  is_ordered = true;
  const bool both = plan_.shape == Shape::BothWays;
  for (Lane& lane : lanes_) {
    if (static_cast<std::uint32_t>(lane.config.peer) == number_) continue;
    const std::uint64_t steps =
        plan_.shape == Shape::Exchange
            ? exchange_steps(call_, lane.config.lane)
            : ring_steps(call_, both, lane.config.lane,
                         static_cast<std::uint32_t>(lane.config.peer), lane.config.direction);
    if (!lane.orders->begin(steps, deadline_ns)) failures.emplace_back("too many operations");
  }
}

void WorldNode::launch() {
  is_leaving = false;
  blocks.clear();
  // One that was to end may have counted what it staged.
  for (Lane& lane : lanes_) lane.steps = lane.first;
  const bool both = plan_.shape == Shape::BothWays;
  const HostCall host{.call = call_, .clock = clock_, .wake = wake_};
  for (std::uint32_t lane = 0; lane < plan_.lanes; ++lane) {
    if (plan_.shape == Shape::Exchange) {
      blocks.push_back(stage_for_exchange(host, lane));
      blocks.push_back(combine_exchange(host, lane));
    } else {
      blocks.push_back(run_ring(host, lane, both));
    }
  }
}

std::vector<std::byte> WorldNode::expected() const {
  const std::size_t bytes = size_of(plan_.dtype);
  std::vector<std::byte> sums(plan_.count * bytes);
  if (plan_.codec == Codec::None) {
    for (std::uint64_t i = 0; i < plan_.count; ++i) {
      std::uint64_t sum = 0;
      for (std::uint32_t node = 0; node < plan_.nodes; ++node) sum += value(node, i);
      store(sums.data() + i * bytes, plan_.dtype, sum);
    }
    return sums;
  }
  std::vector<std::vector<std::byte>> inputs(plan_.nodes, sums);
  AllReduceArgs args = AllReduceArgs::among(plan_.nodes, plan_.count, plan_.dtype);
  args.codec = plan_.codec;
  args.num_outputs = 1;
  args.outputs[0] = sums.data();
  for (std::uint32_t node = 0; node < plan_.nodes; ++node) {
    for (std::uint64_t i = 0; i < plan_.count; ++i)
      store(inputs[node].data() + i * bytes, plan_.dtype, value(node, i));
    args.inputs[node] = inputs[node].data();
  }
  reference::all_reduce_range(args, 0, plan_.count);
  return sums;
}

std::string WorldNode::check() const {
  const std::vector<std::byte> sums = expected();
  const auto* const seen = static_cast<const std::byte*>(call_.result);
  const auto wrong = std::mismatch(sums.begin(), sums.end(), seen).first;
  if (wrong == sums.end()) return {};
  return "operation " + std::to_string(operations) + " of node " + std::to_string(number_) +
         ": element " +
         std::to_string(static_cast<std::size_t>(wrong - sums.begin()) / size_of(plan_.dtype)) +
         " is not the sum";
}

void WorldNode::group_failed(std::uint64_t, const Error& why) {
  failures.push_back(why.to_string());
}

ProxyWorld::ProxyWorld(const WorldPlan& of, const MemoryLink::Options& options) : plan(of) {
  links.resize(std::size_t{plan.nodes} * plan.nodes);
  for (std::uint32_t a = 0; a < plan.nodes; ++a) {
    for (std::uint32_t b = a + 1; b < plan.nodes; ++b)
      links[a * plan.nodes + b] = std::make_unique<MemoryLink>(options);
    nodes.push_back(std::make_unique<WorldNode>(plan, a));
  }
}

MemoryLink& ProxyWorld::link(std::uint32_t a, std::uint32_t b) {
  return *links[std::min(a, b) * plan.nodes + std::max(a, b)];
}

Wire* ProxyWorld::wire(std::uint32_t from, std::uint32_t to) {
  return &link(from, to).end(from < to ? 0 : 1);
}

}  // namespace arcomm::proxy

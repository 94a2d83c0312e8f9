#include "tests/gpu/kernels/network/network_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <utility>

#include "kernels/host/reference.h"
#include "kernels/partition.h"

namespace arcomm::gpu {

using proxy::MemoryLink;
using proxy::ProxyEngine;

NetworkWorld::NetworkWorld(const NetworkShape& shape, Links links) : shape_(shape) {
  links_.resize(std::size_t{shape.nodes} * shape.nodes);
  for (std::uint32_t a = 0; a < shape.nodes; ++a) {
    nodes_.push_back(std::make_unique<NetworkNode>(shape, a));
    for (std::uint32_t b = a + 1; b < shape.nodes; ++b) {
      links_[a * shape.nodes + b] =
          std::make_unique<MemoryLink>(MemoryLink::Options{.is_eager = true,
                                                           .most_sent = kFifoSteps,
                                                           .is_checked = links == Links::Checked,
                                                           .hesitates = nullptr});
    }
  }
  auto proxy = proxy::ProxyThread::start({}, *this);
  EXPECT_TRUE(proxy);
  proxy_ = std::move(*proxy);
  on_proxy([this](ProxyEngine& engine) {
    for (std::uint32_t a = 0; a < shape_.nodes; ++a)
      nodes_[a]->add(engine, [&](std::uint32_t b) { return &link(a, b).end(a < b ? 0 : 1); });
  });
}

NetworkWorld::~NetworkWorld() {
  cudaDeviceSynchronize();  // kernels end by their timeouts
  bool is_gone = false;
  while (!is_gone) {
    on_proxy([&](ProxyEngine& engine) {
      is_gone = is_ending_ = true;
      for (std::uint32_t a = 0; a < shape_.nodes; ++a) {
        engine.fail_group(a, error(ErrorCode::Cancelled, Reason::None, "the end"));
        is_gone = nodes_[a]->remove(engine) && is_gone;
      }
    });
  }
  proxy_.reset();
}

MemoryLink& NetworkWorld::link(std::uint32_t a, std::uint32_t b) {
  return *links_[std::min(a, b) * shape_.nodes + std::max(a, b)];
}

void NetworkWorld::on_proxy(const std::function<void(ProxyEngine&)>& task) {
  std::promise<void> done;
  proxy_->run([&](ProxyEngine& engine) {
    task(engine);
    done.set_value();
  });
  done.get_future().wait();
}

void NetworkWorld::group_failed(std::uint64_t group, const Error& why) {
  if (!is_ending_) failures_.push_back("node " + std::to_string(group) + ": " + why.to_string());
}

std::vector<std::string> NetworkWorld::failures(std::size_t at_least) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (;;) {
    std::vector<std::string> told;
    on_proxy([&](ProxyEngine&) { told = failures_; });
    if (told.size() >= at_least || std::chrono::steady_clock::now() > until) return told;
  }
}

std::vector<std::string> NetworkWorld::violations() const {
  std::vector<std::string> all;
  for (const auto& link : links_) {
    if (link == nullptr) continue;
    for (const std::string& what : link->violations()) all.push_back(what);
  }
  return all;
}

void NetworkWorld::prepare(std::uint32_t operation) {
  for (auto& node : nodes_) node->prepare(operation);
}

void NetworkWorld::launch(std::uint32_t operation, std::uint64_t timeout_ns) {
  for (auto& node : nodes_) {
    const Status launched = node->launch(operation, timeout_ns);
    ASSERT_TRUE(launched) << launched.error().to_string();
  }
  proxy_->ring();
}

void NetworkWorld::expect_success(std::uint32_t operation) {
  for (std::uint32_t number = 0; number < shape_.nodes; ++number) {
    const Done done = nodes_[number]->wait(operation);
    ASSERT_EQ(done.number, operation) << "node " << number << " has no verdict";
    ASSERT_EQ(done.code, 0) << "node " << number << ": " << name_of(error_code_from(done.code))
                            << ", waiting for node " << done.culprit_rank << ' '
                            << testing::PrintToString(failures());
  }
}

void NetworkWorld::expect_reference_bits() {
  const std::vector<std::byte> right = expected();
  for (std::uint32_t number = 0; number < shape_.nodes; ++number) {
    const std::vector<std::byte> result = nodes_[number]->result();
    const auto wrong = std::mismatch(result.begin(), result.end(), right.begin()).first;
    ASSERT_EQ(wrong, result.end()) << "node " << number << ": byte " << wrong - result.begin()
                                   << " of " << result.size() << " is wrong";
    ASSERT_TRUE(nodes_[number]->guards_are_whole()) << "node " << number << " wrote outside";
  }
  ASSERT_EQ(violations(), std::vector<std::string>{});
}

void NetworkWorld::run(std::uint32_t operation) {
  prepare(operation);
  ASSERT_NO_FATAL_FAILURE(launch(operation, kTimeoutNs));
  ASSERT_NO_FATAL_FAILURE(expect_success(operation));
  ASSERT_NO_FATAL_FAILURE(expect_reference_bits());
}

std::vector<std::byte> NetworkWorld::expected() const {
  std::vector<std::byte> result(shape_.count * size_of(shape_.dtype));
  if (shape_.is_ring) {
    reduce_for_ring(result);
  } else {
    reduce_for_exchange(result);
  }
  return result;
}

// All nodes' parts, in the order of nodes, rounded once.
void NetworkWorld::reduce_for_exchange(std::vector<std::byte>& result) const {
  AllReduceArgs args = AllReduceArgs::among(shape_.nodes, shape_.count, shape_.dtype, shape_.op);
  args.codec = shape_.codec;
  args.divisor = shape_.nodes;
  // With a codec what seats have together is encoded already, and what one has is not.
  args.stage = shape_.is_wide ? ReduceStage::Final : ReduceStage::Whole;
  args.num_outputs = 1;
  args.outputs[0] = result.data();
  for (std::uint32_t number = 0; number < shape_.nodes; ++number)
    args.inputs[number] = nodes_[number]->partial().data();
  reference::all_reduce_range(args, 0, shape_.count);
}

// Shard s begins with node s and goes round from there, each adding its own: one hop, one rounding.
void NetworkWorld::reduce_for_ring(std::vector<std::byte>& result) const {
  const DType type = shape_.partial_type();
  for (std::uint32_t shard = 0; shard < shape_.nodes; ++shard) {
    const ElementRange range = shard_range(shape_.count, shape_.dtype, shape_.nodes, shard);
    const auto part_of = [&](std::uint32_t number) {
      return nodes_[number % shape_.nodes]->partial().subspan(range.first * size_of(type),
                                                              range.size() * size_of(type));
    };
    const auto first = part_of(shard);
    std::vector<std::byte> so_far(first.begin(), first.end());
    for (std::uint32_t hop = 1; hop < shape_.nodes; ++hop) {
      const bool is_last = hop + 1 == shape_.nodes;
      AllReduceArgs args =
          AllReduceArgs::among(2, range.size(), is_last ? shape_.dtype : type, shape_.op);
      if (!is_last && shape_.op == ReduceOp::Avg) args.op = ReduceOp::Sum;
      args.divisor = shape_.nodes;
      if (is_last && shape_.is_wide) args.stage = ReduceStage::Final;
      args.inputs[0] = so_far.data();
      args.inputs[1] = part_of(shard + hop).data();
      args.num_outputs = 1;
      args.outputs[0] =
          is_last ? result.data() + range.first * size_of(shape_.dtype) : so_far.data();
      reference::all_reduce_range(args, 0, range.size());
    }
  }
}

}  // namespace arcomm::gpu

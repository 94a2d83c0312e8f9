#include "tests/gpu/kernels/network/network_node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "daemon/proxy/adaptive_wait.h"
#include "daemon/proxy/fifo/fifo_words.h"
#include "kernels/network/ring_steps.h"
#include "tests/gpu/kernels/coded_elements.h"
#include "tests/gpu/kernels/node/random_elements.h"

namespace arcomm::gpu {
namespace {

constexpr std::size_t whole_lines(std::size_t bytes) {
  return (bytes + kNodeGuard - 1) / kNodeGuard * kNodeGuard;
}

}  // namespace

NetworkNode::NetworkNode(const NetworkShape& shape, std::uint32_t number)
    : shape_(shape),
      number_(number),
      fifos_(NetworkCall::ports_of(shape.nodes, shape.lanes)),
      most_bytes_(static_cast<std::uint32_t>(shape.wire_bytes(shape.chunk_elements))),
      ports_(fifos_),
      steps_(fifos_),
      in_memory_(area_bytes()),
      out_memory_(area_bytes()),
      words_(1) {
  if (shape.seats != 0) seats_ = std::make_unique<NodeSeats>(shape);
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  lay_out_pinned_memory();
  make_fifos();
  // What the owners above zeroed is not ordered before kernels of this stream.
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

NetworkNode::~NetworkNode() {
  cudaStreamDestroy(stream_);
}

std::size_t NetworkNode::area_bytes() const {
  return 2 * kNodeGuard +
         whole_lines((shape_.count + shape_.shift) * size_of(shape_.partial_type()));
}

NetworkNode::Area NetworkNode::area_of(std::byte* begin, DType type) const {
  const std::size_t first = kNodeGuard + shape_.shift * size_of(type);
  return {begin, area_bytes(), first, first + shape_.count * size_of(type)};
}

void NetworkNode::lay_out_pinned_memory() {
  const std::size_t slots_bytes =
      fifos_ * most_bytes_ * (shape_.mode == SlotMode::Offset ? shape_.pool_share : kFifoSteps);
  const bool points = shape_.mode == SlotMode::Pointer;
  auto page = PinnedPage::create(fifos_ * sizeof(DeviceFifo) + whole_lines(slots_bytes) +
                                 kNodeGuard + (points ? area_bytes() : 0));
  ASSERT_TRUE(page) << page.error().to_string();
  pinned_ = std::move(*page);
  auto* at = static_cast<std::byte*>(pinned_.host());
  device_fifos_ = reinterpret_cast<DeviceFifo*>(at);
  at += fifos_ * sizeof(DeviceFifo);
  slots_ = {at, slots_bytes};
  at += whole_lines(slots_bytes);
  verdict_ = reinterpret_cast<std::uint64_t*>(at);
  at += kNodeGuard;
  // Pointer mode sends partials from where they lie, which the wire of a test must reach.
  in_ = area_of(points ? at : in_memory_.data(), shape_.partial_type());
  out_ = shape_.is_in_place ? in_ : area_of(out_memory_.data(), shape_.dtype);
}

void NetworkNode::make_fifos() {
  const std::size_t of_each = std::size_t{most_bytes_} * kFifoSteps;
  if (shape_.mode == SlotMode::Offset) {
    pool_ = std::make_unique<proxy::SharedSlots>(slots_, most_bytes_,
                                                 static_cast<std::uint32_t>(fifos_));
  }
  std::vector<FifoPort> ports(fifos_);
  for (std::uint64_t i = 0; i < fifos_; ++i) {
    const auto own = pool_ != nullptr ? slots_ : slots_.subspan(i * of_each, of_each);
    const int peer = static_cast<int>(i / 2 % shape_.nodes);
    configs_.push_back(
        {.direction = i % 2 == 0 ? FifoDirection::Send : FifoDirection::Receive,
         .fifo = device_fifos_ + i,
         .memory = {.mode = shape_.mode,
                    .most_bytes = most_bytes_,
                    .slots = own,
                    .pool = pool_.get(),
                    .regions = {own, std::span(in_.begin, in_.bytes)}},  // read in Pointer mode
         .wire = nullptr,
         .lane = static_cast<std::uint32_t>(i / 2 / shape_.nodes),
         .peer = peer,
         .peer_name = "node " + std::to_string(peer),
         .group = number_,
         .orders = std::make_shared<proxy::FifoOrders>()});
    ports[i] = {.fifo = device_fifos_ + i,
                .memory = reinterpret_cast<unsigned char*>(own.data()),
                .memory_bytes = own.size(),
                .most_bytes = most_bytes_,
                .mode = shape_.mode,
                .peer = peer,
                .steps = steps_.data() + i};
  }
  ports_.write(ports);
}

void NetworkNode::add(proxy::ProxyEngine& engine,
                      const std::function<proxy::Wire*(std::uint32_t)>& wire_to) {
  for (proxy::FifoConfig& config : configs_) {
    if (config.peer == static_cast<int>(number_)) continue;
    config.wire = wire_to(static_cast<std::uint32_t>(config.peer));
    const auto added = engine.add(config);
    ASSERT_TRUE(added) << added.error().to_string();
    ids_.push_back(*added);
  }
}

bool NetworkNode::remove(proxy::ProxyEngine& engine) {
  bool all = true;
  for (const proxy::FifoId id : ids_) all = engine.remove(id) && all;
  return all;
}

void NetworkNode::prepare(std::uint32_t operation) {
  std::mt19937_64 random(std::uint64_t{operation} << 32 | number_);
  const DType type = shape_.partial_type();
  if (seats_ != nullptr) {
    partial_ = seats_->prepare(random, stream_);
    return;
  }
  if (shape_.codec != Codec::None) {
    partial_ = Elements(static_cast<unsigned>(random())).make(type, shape_.count);
  } else {
    partial_.resize(shape_.count * size_of(type) + 8);  // whole words
    fill(partial_, type, random);
    partial_.resize(shape_.count * size_of(type));
  }
  const auto write = [this](const Area& area, bool with_partial) {
    std::vector<std::byte> image(area.bytes, kNodePoison);
    if (with_partial && !partial_.empty())
      std::memcpy(image.data() + area.first, partial_.data(), partial_.size());
    EXPECT_EQ(cudaMemcpyAsync(area.begin, image.data(), image.size(), cudaMemcpyDefault, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  };
  if (!shape_.is_in_place) write(out_, false);
  write(in_, true);
}

Status NetworkNode::launch(std::uint32_t operation, std::uint64_t timeout_ns) {
  NetworkLaunch launch{.call = {.partial = in_.begin + in_.first,
                                .result = out_.begin + out_.first,
                                .count = shape_.count,
                                .timeout_ns = timeout_ns,
                                .node = number_,
                                .nodes = shape_.nodes,
                                .lanes = shape_.lanes,
                                .divisor = shape_.nodes,
                                .chunk_elements = shape_.chunk_elements,
                                .depth = shape_.pool_share,
                                .dtype = shape_.dtype,
                                .op = shape_.op,
                                .is_wide = shape_.is_wide,
                                .codec = shape_.codec,
                                .ports = ports_.data()},
                       .words = words_.data(),
                       .verdict = verdict_,
                       .number = operation};
  if (seats_ != nullptr) {
    launch.call.seats = seats_->seats();
    launch.call.partial = nullptr;
    launch.call.result = launch.call.seats.recv[0];
  }
  const std::uint64_t deadline_ns = proxy::AdaptiveWait::now_ns() + timeout_ns;
  for (const proxy::FifoConfig& config : configs_) {
    if (config.peer == static_cast<int>(number_)) continue;
    const std::uint64_t steps =
        shape_.is_ring ? ring_steps(launch.call, shape_.is_bidirectional, config.lane,
                                    static_cast<std::uint32_t>(config.peer), config.direction)
                       : exchange_steps(launch.call, config.lane);
    EXPECT_TRUE(config.orders->begin(steps, deadline_ns));
  }
  return shape_.is_ring ? launch_network_ring(launch, shape_.is_bidirectional, stream_)
                        : launch_network_exchange(launch, stream_);
}

Done NetworkNode::wait(std::uint32_t operation) const {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;;) {
    const Done done = done_from(proxy::load_acquire(*verdict_));
    if (done.number == operation || std::chrono::steady_clock::now() > until) return done;
  }
}

std::vector<std::byte> NetworkNode::read(const Area& area) const {
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  std::vector<std::byte> all(area.bytes);
  EXPECT_EQ(cudaMemcpy(all.data(), area.begin, all.size(), cudaMemcpyDefault), cudaSuccess);
  return all;
}

std::vector<std::byte> NetworkNode::result() const {
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  if (seats_ != nullptr) return seats_->result();
  const std::vector<std::byte> all = read(out_);
  return {all.begin() + static_cast<std::ptrdiff_t>(out_.first),
          all.begin() + static_cast<std::ptrdiff_t>(out_.last)};
}

bool NetworkNode::guards_are_whole() const {
  if (seats_ != nullptr) return seats_->are_alike();
  const std::vector<std::byte> all = read(out_);
  const auto is_poison = [](std::byte byte) { return byte == kNodePoison; };
  return std::all_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(out_.first),
                     is_poison) &&
         std::all_of(all.begin() + static_cast<std::ptrdiff_t>(out_.last), all.end(), is_poison);
}

std::span<const std::byte> NetworkNode::slots_to(std::uint32_t peer) const {
  const std::uint64_t index =
      NetworkCall{.nodes = shape_.nodes}.port_index(0, peer, FifoDirection::Send);
  const std::size_t of_each = std::size_t{most_bytes_} * kFifoSteps;
  return std::span<const std::byte>(slots_).subspan(index * of_each, of_each);
}

void NetworkNode::limit_waits(std::uint64_t ns) const {
  for (std::uint64_t i = 0; i < fifos_; ++i)
    proxy::store_release(device_fifos_[i].most_wait_ns, ns);
}

}  // namespace arcomm::gpu

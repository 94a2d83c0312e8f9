#include "daemon/exec/gpu/network/network_fifos.h"

#include <algorithm>
#include <utility>

#include "kernels/network/ring_steps.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kAlignment = 128;

constexpr std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// In the GPU's memory.
constexpr std::uint64_t kPortsAt = aligned(sizeof(NetworkWords));
constexpr std::uint64_t steps_at(std::uint64_t ports) {
  return aligned(kPortsAt + ports * sizeof(FifoPort));
}
constexpr std::uint64_t parts_at(std::uint64_t ports) {
  return aligned(steps_at(ports) + ports * sizeof(std::uint64_t));
}

std::uint32_t lanes_of(const CommunicatorSpec& spec) {
  return GpuExchange::lanes_among(static_cast<std::uint32_t>(spec.nodes.size()),
                                  spec.policy.gpu_lanes);
}

std::uint32_t slot_bytes_of(const CommunicatorSpec& spec) {
  return slot_bytes_among(static_cast<std::uint32_t>(spec.nodes.size()));
}

// A node has several ranks: all nodes' partials are of one kind, so all combine theirs.
bool combines_seats(const CommunicatorSpec& spec) {
  return spec.node_of_rank.size() > spec.nodes.size();
}

}  // namespace

// Of the pinned part, in bytes from its begin.
struct NetworkFifos::Layout {
  Layout(std::uint32_t nodes, std::uint32_t lanes, std::uint32_t slot_bytes)
      : count(NetworkCall::ports_of(nodes, lanes)),
        windows(LaneWindows::bytes(nodes, lanes, slot_bytes)),
        sends(windows),
        words(2 * windows),
        ports(words + count * sizeof(DeviceFifo)),
        steps(aligned(ports + count * sizeof(FifoPort))),
        verdict(aligned(steps + count * sizeof(std::uint64_t))),
        all(verdict + kAlignment) {}
  std::uint64_t count;    // of ports
  std::uint64_t windows;  // bytes of them; they are first
  std::uint64_t sends, words, ports, steps, verdict, all;
};

std::uint64_t NetworkFifos::device_bytes(const CommunicatorSpec& spec) {
  const std::uint32_t lanes = lanes_of(spec);
  const std::uint64_t parts = combines_seats(spec) ? std::uint64_t{lanes} * slot_bytes_of(spec) : 0;
  return parts_at(NetworkCall::ports_of(static_cast<std::uint32_t>(spec.nodes.size()), lanes)) +
         parts;
}

NetworkFifos::NetworkFifos(const Parts& parts)
    : pool_(parts.pool),
      engine_(parts.engine),
      group_(parts.group),
      uid_(parts.spec.uid),
      slot_bytes_(slot_bytes_of(parts.spec)),
      lanes_(lanes_of(parts.spec)),
      combines_seats_(combines_seats(parts.spec)),
      windows_(parts.spec, lanes_, slot_bytes_, parts.links),
      device_(parts.member.network.data()) {}

NetworkFifos::~NetworkFifos() {
  pool_.give_back(uid_, memory_);
}

Status NetworkFifos::open(const Parts& parts) {
  const std::uint32_t nodes = windows_.nodes();
  const Layout layout(nodes, lanes_, slot_bytes_);
  auto taken = pool_.take(uid_, layout.all);
  if (!taken) return std::move(taken).error();
  memory_ = *taken;
  ports_ = {reinterpret_cast<FifoPort*>(memory_.data() + layout.ports), layout.count};
  std::uninitialized_fill(ports_.begin(), ports_.end(), FifoPort{});
  steps_.resize(layout.count);
  copied_steps_ = {reinterpret_cast<std::uint64_t*>(memory_.data() + layout.steps), layout.count};
  verdict_ = reinterpret_cast<std::uint64_t*>(memory_.data() + layout.verdict);
  *verdict_ = 0;
  orders_.resize(ports_.size());
  ARC_RETURN_IF_ERROR(windows_.open(memory_.first(layout.windows)));
  for (std::uint32_t node = 0; node < nodes; ++node) {
    for (std::uint32_t lane = 0; lane < lanes_ && node != windows_.here(); ++lane) {
      ARC_RETURN_IF_ERROR(add(parts, node, lane, FifoDirection::Send, layout));
      ARC_RETURN_IF_ERROR(add(parts, node, lane, FifoDirection::Receive, layout));
    }
  }
  return {};
}

Status NetworkFifos::add(const Parts& parts, std::uint32_t node, std::uint32_t lane,
                         FifoDirection direction, const Layout& layout) {
  const NetworkCall shape{.nodes = windows_.nodes(), .lanes = lanes_};
  const std::uint64_t index = shape.port_index(lane, node, direction);
  auto* const fifo = reinterpret_cast<DeviceFifo*>(memory_.data() + layout.words) + index;
  std::span<std::byte> slots = windows_.slots(node, lane);
  // What is sent lies as what comes, one area behind it.
  if (direction == FifoDirection::Send) slots = {slots.data() + layout.sends, slots.size()};
  orders_[index] = std::make_shared<proxy::FifoOrders>();
  proxy::FifoConfig config;
  config.direction = direction;
  config.fifo = fifo;
  config.memory = {.mode = SlotMode::Normal, .most_bytes = slot_bytes_, .slots = slots};
  config.wire = &windows_.wire(node);
  config.lane = lane;
  config.peer = static_cast<int>(node);
  config.peer_name = "node " + parts.spec.nodes[node].name;
  config.group = parts.group;
  config.orders = orders_[index];
  auto added = engine_.add(std::move(config));
  if (!added) return std::move(added).error();
  fifos_.push_back(*added);
  auto* const steps = reinterpret_cast<std::uint64_t*>(device_ + steps_at(layout.count));
  ports_[index] = {.fifo = fifo,
                   .memory = reinterpret_cast<unsigned char*>(slots.data()),
                   .memory_bytes = slots.size(),
                   .most_bytes = slot_bytes_,
                   .mode = SlotMode::Normal,
                   .peer = static_cast<std::int32_t>(node),
                   .steps = steps + index};
  return {};
}

GpuExchange NetworkFifos::cut_of(const OperationSpec& called) const {
  return GpuExchange::of({.count = called.send_count,
                          .dtype = called.dtype,
                          .nodes = windows_.nodes(),
                          .one_seat_each = !combines_seats_,
                          .codec = called.codec},
                         lanes_);
}

NetworkCall NetworkFifos::call_of(const Operation& operation) const {
  const Seat& first = operation.seats.front();
  const OperationSpec& called = operation.called;
  const GpuExchange cut = cut_of(called);
  NetworkCall call{.partial = combines_seats_ ? nullptr : first.send,
                   .result = first.recv,
                   .count = called.send_count,
                   .timeout_ns = operation.timeout_ns,
                   .node = windows_.here(),
                   .nodes = windows_.nodes(),
                   .lanes = cut.lanes,
                   .divisor = operation.divisor,
                   .chunk_elements = cut.chunk_elements,
                   .depth = kFifoSteps,
                   .dtype = called.dtype,
                   .op = called.op,
                   .is_wide = combines_seats_,
                   .codec = called.codec,
                   .seats = {},
                   .ports = reinterpret_cast<const FifoPort*>(device_ + kPortsAt)};
  if (!combines_seats_) return call;
  call.seats.parts = reinterpret_cast<unsigned char*>(device_ + parts_at(ports_.size()));
  call.seats.part_bytes = slot_bytes_;
  for (const Seat& seat : operation.seats) {
    call.seats.send[call.seats.count] = seat.send;
    call.seats.recv[call.seats.count++] = seat.recv;
    call.seats.is_in_place |= seat.send == seat.recv;
  }
  return call;
}

Status NetworkFifos::copy(const GpuMember& member, std::byte* to,
                          std::span<const std::byte> from) const {
  GpuLauncher& launcher = member.launcher();
  const std::uint32_t queue = member.queue;
  ARC_RETURN_IF_ERROR(launcher.copy(queue, to, from.data(), from.size()));
  const auto copied = launcher.record({.queue = queue, .kind = QueueStream::Kind::Copies});
  if (!copied) return copied.error();
  return launcher.wait({.queue = queue}, *copied);
}

Status NetworkFifos::launch(const GpuMember& member, const Operation& operation) {
  if (!has_ports_) {
    ARC_RETURN_IF_ERROR(copy(member, device_ + kPortsAt, std::as_bytes(ports_)));
    has_ports_ = true;
  }
  if (!has_steps_) {
    std::ranges::copy(steps_, copied_steps_.begin());  // which go on before they are there
    ARC_RETURN_IF_ERROR(
        copy(member, device_ + steps_at(ports_.size()), std::as_bytes(copied_steps_)));
    has_steps_ = true;
  }
  const NetworkCall call = call_of(operation);
  number_ = operation.number;
  // Whatever an earlier one said is of another number.
  __atomic_store_n(verdict_, to_word(Done{.number = number_ - 1}), __ATOMIC_RELEASE);
  NetworkLaunch kernel{.call = call,
                       .words = reinterpret_cast<NetworkWords*>(device_),
                       .verdict = verdict_,
                       .number = operation.number};
  for (std::size_t seat = 0; seat < operation.seats.size(); ++seat)
    kernel.waiters[seat] = operation.seats[seat].waiter;
  Status launched = member.launcher().launch_network(member.queue, kernel);
  is_launched_ = launched.ok();  // or there is none that could end
  return launched;
}

Status NetworkFifos::order(const OperationSpec& called, std::uint64_t deadline_ns) {
  const GpuExchange cut = cut_of(called);
  const NetworkCall call{.count = called.send_count,
                         .node = windows_.here(),
                         .nodes = windows_.nodes(),
                         .lanes = cut.lanes,
                         .chunk_elements = cut.chunk_elements};
  for (std::uint32_t node = 0; node < call.nodes; ++node) {
    for (std::uint32_t lane = 0; lane < cut.lanes && node != call.node; ++lane) {
      for (const FifoDirection direction : {FifoDirection::Send, FifoDirection::Receive}) {
        const std::uint64_t port = call.port_index(lane, node, direction);
        const std::uint64_t steps = exchange_steps(call, lane);
        if (!orders_[port]->begin(steps, deadline_ns)) {
          return error(ErrorCode::Internal, Reason::Bug,
                       "an operation between nodes was begun before others had ended");
        }
        steps_[port] += steps;
      }
    }
  }
  return {};
}

Done NetworkFifos::verdict() const {
  // Pairs with the kernel's release at system scope: the result is there.
  return done_from(__atomic_load_n(verdict_, __ATOMIC_ACQUIRE));
}

bool NetworkFifos::has_ended() const {
  return !is_launched_ || verdict().number == number_;
}

bool NetworkFifos::is_settled() const {
  return std::ranges::all_of(
      orders_, [](const auto& orders) { return orders == nullptr || orders->is_idle(); });
}

bool NetworkFifos::is_let_go() {
  if (!has_ended()) return false;
  std::erase_if(fifos_, [this](proxy::FifoId id) { return engine_.remove(id); });
  return fifos_.empty() && windows_.is_let_go();
}

}  // namespace arcomm

#include "tests/unit/daemon/exec/net/node_fabric.h"

#include <algorithm>
#include <cstring>

namespace arcomm {

class NodeFabric::NodeLinks final : public Links {
 public:
  NodeLinks(NodeFabric& fabric, std::uint32_t node) : fabric_(fabric), node_(node) {}

  void send(PeerId peer, net::MessageKind kind, const net::FrameHeader& names,
            std::initializer_list<std::span<const std::byte>> parts) override {
    Message message{node_, node_of(peer), kind, names, {}};
    for (const auto part : parts) message.body.insert(message.body.end(), part.begin(), part.end());
    const std::scoped_lock lock(fabric_.mutex_);
    if (!fabric_.cut_.contains({node_, message.to}))
      fabric_.messages_.push_back(std::move(message));
  }
  net::Progress post(PeerId peer, const net::Frame& frame, net::OnLoan& on_loan) override {
    return fabric_.post(node_, node_of(peer), frame, on_loan);
  }
  net::Regions* regions() override { return fabric_.regions_[node_].get(); }
  void sever(PeerId peer, const Error&) override {
    const std::uint32_t other = node_of(peer);
    {
      const std::scoped_lock lock(fabric_.mutex_);
      fabric_.severed_.insert({node_, other});
    }
    fabric_.cut(node_, other);
    fabric_.cut(other, node_);
  }

  std::uint64_t moved_bytes(PeerId) const override { return fabric_.others_move_ ? ++moved_ : 0; }

 private:
  static std::uint32_t node_of(PeerId peer) {
    return static_cast<std::uint32_t>(peer - peer_of(0));
  }
  NodeFabric& fabric_;
  const std::uint32_t node_;
  mutable std::uint64_t moved_ = 0;
};

NodeFabric::NodeFabric(std::uint32_t nodes, Deliver deliver) : deliver_(std::move(deliver)) {
  for (std::uint32_t node = 0; node < nodes; ++node) {
    links_.push_back(std::make_unique<NodeLinks>(*this, node));
    regions_.push_back(std::make_unique<net::Regions>());
  }
}

Links& NodeFabric::links(std::uint32_t node) {
  return *links_[node];
}

NodeFabric::~NodeFabric() {
  for (const auto& flight : flights_) give_back(*flight);
}

net::Progress NodeFabric::post(std::uint32_t from, std::uint32_t to, const net::Frame& frame,
                               net::OnLoan& on_loan) {
  const std::scoped_lock lock(mutex_);
  if (cut_.contains({from, to})) return net::Progress::Failed;
  // A short queue, so that it is full now and then.
  const auto queued = std::count_if(flights_.begin(), flights_.end(), [&](const auto& flight) {
    return flight->from == from && flight->stage == Stage::Posted;
  });
  if (refuses_ || queued > 20) return net::Progress::Again;
  auto flight = std::make_unique<Flight>();
  flight->from = from;
  flight->to = to;
  flight->frame = frame;
  flight->frame.header.length = static_cast<std::uint32_t>(frame.payload.size());
  flight->on_loan = &on_loan;
  flights_.push_back(std::move(flight));
  return net::Progress::Done;
}

bool NodeFabric::step(std::mt19937& random) {
  std::unique_ptr<Flight> flight;
  {
    const std::scoped_lock lock(mutex_);
    if (flights_.empty()) return false;
    const std::size_t at = random() % flights_.size();
    if (frozen_.contains({flights_[at]->from, flights_[at]->to})) return true;
    std::swap(flights_[at], flights_.back());
    flight = std::move(flights_.back());
    flights_.pop_back();
    ++moving_;
  }
  const bool goes_on = move(*flight);
  const std::scoped_lock lock(mutex_);
  --moving_;
  if (!goes_on) return true;
  if (cut_.contains({flight->from, flight->to})) {
    give_back(*flight);
  } else {
    flights_.push_back(std::move(flight));
  }
  return true;
}

bool NodeFabric::move(Flight& flight) {
  const net::FrameHeader& header = flight.frame.header;
  switch (flight.stage) {
    case Stage::Posted:
      flight.wire.assign(flight.frame.payload.begin(), flight.frame.payload.end());
      flight.on_loan->fetch_sub(1, std::memory_order_release);
      flight.on_loan = nullptr;
      flight.stage = Stage::OnTheWire;
      return true;
    case Stage::OnTheWire: {
      auto visit = regions_[flight.to]->enter(header);
      if (!visit || !*visit) return false;  // dropped
      flight.visit = *std::move(visit);
      flight.stage = Stage::Landing;
      const std::size_t half = flight.wire.size() / 2;
      if (half > 0)
        std::memcpy(net::Regions::place_of(flight.visit, header), flight.wire.data(), half);
      return true;
    }
    case Stage::Landing:
      break;
  }
  const std::size_t half = flight.wire.size() / 2;
  if (flight.wire.size() > half)
    std::memcpy(net::Regions::place_of(flight.visit, header) + half, flight.wire.data() + half,
                flight.wire.size() - half);
  const bool is_damaged = !flight.wire.empty() && damages_next_.exchange(false);
  is_damaged ? regions_[flight.to]->damage(flight.visit, header)
             : net::Regions::raise(flight.visit, header);
  flight.visit = {};
  return false;
}

bool NodeFabric::deliver_message(std::mt19937& random) {
  Message message;
  {
    const std::scoped_lock lock(mutex_);
    if (messages_.empty()) return false;
    // In order between each two.
    const Message& any = messages_[random() % messages_.size()];
    const auto oldest = std::find_if(messages_.begin(), messages_.end(), [&](const Message& other) {
      return other.from == any.from && other.to == any.to;
    });
    if (frozen_.contains({oldest->from, oldest->to})) return false;
    message = std::move(*oldest);
    messages_.erase(oldest);
  }
  deliver_(message.to, message.from, message.kind, message.names, std::move(message.body));
  return true;
}

bool NodeFabric::is_quiet() const {
  const std::scoped_lock lock(mutex_);
  return flights_.empty() && messages_.empty() && moving_ == 0;
}

void NodeFabric::freeze(std::uint32_t from, std::uint32_t to) {
  const std::scoped_lock lock(mutex_);
  frozen_.insert({from, to});
}

void NodeFabric::thaw(std::uint32_t from, std::uint32_t to) {
  const std::scoped_lock lock(mutex_);
  frozen_.erase({from, to});
}

void NodeFabric::cut(std::uint32_t from, std::uint32_t to) {
  const std::scoped_lock lock(mutex_);
  cut_.insert({from, to});
  frozen_.erase({from, to});
  std::erase_if(messages_,
                [&](const Message& message) { return message.from == from && message.to == to; });
  std::erase_if(flights_, [&](const auto& flight) {
    if (flight->from != from || flight->to != to) return false;
    give_back(*flight);
    return true;
  });
}

void NodeFabric::give_back(Flight& flight) {
  if (flight.on_loan != nullptr) flight.on_loan->fetch_sub(1, std::memory_order_release);
  flight.on_loan = nullptr;
  flight.visit = {};
}

}  // namespace arcomm

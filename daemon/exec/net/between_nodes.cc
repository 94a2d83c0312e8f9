#include "daemon/exec/net/between_nodes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/exec/clock.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {

Error BetweenNodes::ended() {
  return error(ErrorCode::Unavailable, Reason::ShuttingDown, "the daemon stopped");
}

Result<std::vector<int>> BetweenNodes::open_link(LinkSpec spec) {
  const std::string name = spec.name;
  Result<std::vector<int>> descriptors = links_.open(std::move(spec));
  if (descriptors) log::info("linked with node {}", name);
  return descriptors;
}

void BetweenNodes::close_link(PeerId peer, const Error& why) {
  const Link* link = links_.find(peer);
  if (link == nullptr) return;
  const std::string name = link->name();
  links_.close(peer, why);
  lose(peer, name, why);
}

Result<World> BetweenNodes::check(const CommunicatorSpec& spec) const {
  if (executor_ == nullptr)
    return error(ErrorCode::Unimplemented, Reason::Unsupported,
                 "ranks on several nodes: this daemon's workers for such devices cannot do that");
  Result<World> world = World::create(spec.node_of_rank, spec.here);
  if (!world) return world;
  if (spec.node_of_rank.size() > static_cast<std::size_t>(kMaxRanks))
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "a communicator has 1 to ",
                 kMaxRanks, " ranks, not ", spec.node_of_rank.size());
  if (world->nodes() != spec.nodes.size() || world->is_one_node())
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "ranks are on ", world->nodes(),
                 " nodes, and ", spec.nodes.size(), " are named");
  if (agreements_.contains(spec.communicator) || early_.has_ended(spec.communicator))
    return error(ErrorCode::AlreadyExists, Reason::BadValue, "communicator number ",
                 spec.communicator, " is, or was, another one's");
  if (early_.has_lost(spec.communicator))
    return error(ErrorCode::ResourceExhausted, Reason::Quota,
                 "what other nodes have sent for it before it was formed was too much, too early, "
                 "or came over a link that has gone: it is to be formed anew");
  for (std::uint32_t index = 0; index < spec.nodes.size(); ++index) {
    const NodeSpec& node = spec.nodes[index];
    if (index != spec.here && links_.find(node.peer) == nullptr)
      return error(ErrorCode::Unavailable, Reason::RemoteDied, "there is no link to node ",
                   node.name);
  }
  return world;
}

Status BetweenNodes::span(Communicator& communicator, const CommunicatorSpec& spec) {
  communicator.elsewhere = std::make_unique<NodeAgreement>(
      NodeAgreement::Parts{.communicator = communicator,
                           .table = table_,
                           .links = links_,
                           .executor = *executor_,
                           .memory = offers_,
                           .uid = spec.uid,
                           .number = spec.communicator,
                           .nodes = spec.nodes,
                           .on_end = [this](std::uint64_t number) {
                             std::erase(offering_, agreements_[number]);
                             agreements_.erase(number);
                             early_.end(number);
                           }});
  NodeAgreement& agreement = *agreement_of(communicator);
  agreements_[spec.communicator] = &agreement;
  ARC_RETURN_IF_ERROR(executor_->form(communicator, spec));
  // Times in them count from when they came.
  for (const EarlyMessages::Kept& kept : early_.take(spec.communicator)) {
    if (Status taken = take(agreement, kept.from, kept.names, kept.message(), kept.since_ns);
        !taken)
      links_.fail(kept.from, std::move(taken).error());
  }
  return {};
}

void BetweenNodes::revoked(Communicator& communicator) {
  if (communicator.elsewhere != nullptr) agreement_of(communicator)->revoked();
  lively_until_ns_ = ~std::uint64_t{0} / 2;  // until the next look, which settles it
}

Status BetweenNodes::message_came(Link& from, const net::FrameHeader& names,
                                  const net::Message& message) {
  const std::uint64_t now = now_ns();
  const auto found = agreements_.find(names.communicator);
  if (found == agreements_.end()) {
    early_.keep(from.peer(), names, message, now);
    look_by(now + EarlyMessages::kLongestNs);
    return {};
  }
  look_by(now + NodeAgreement::kWaitingNs);
  return take(*found->second, from.peer(), names, message, now);
}

Status BetweenNodes::take(NodeAgreement& agreement, PeerId from, const net::FrameHeader& names,
                          const net::Message& message, std::uint64_t now_ns) {
  const std::optional<std::uint32_t> node = agreement.node_of(from);
  if (!node || *node == agreement.communicator().world.here())
    return error(ErrorCode::DataLoss, Reason::Corrupt, "a message ", text_of(message.kind),
                 " for communicator ", names.communicator, ", in which that node has no rank");
  if (names.epoch != agreement.epoch()) {
    ++other_epoch_;
    return {};
  }
  // A Waiting is to be answered at once.
  if (message.kind == net::MessageKind::Waiting) look_by(now_ns);
  return agreement.take(*node, names, message, now_ns);
}

void BetweenNodes::link_ended(PeerId peer, const std::string& name, const Error& why) {
  log::warn("the link with node {} has ended: {}", name, why.message);
  lose(peer, name, why);
  if (link_lost_) link_lost_(peer, why);
}

void BetweenNodes::lose(PeerId peer, const std::string& name, const Error& why) {
  early_.forget(peer);
  for (const auto& [number, agreement] : agreements_) {
    const std::optional<std::uint32_t> node = agreement->node_of(peer);
    if (!node) continue;
    Communicator& communicator = agreement->communicator();
    Rank first = 0;
    while (communicator.world.place(first).node != *node) ++first;
    // What a broken peer did is said as it is; all else is that it is not there.
    const bool is_fault = why.code == ErrorCode::DataLoss || why.code == ErrorCode::Unimplemented;
    table_.revoke(communicator,
                  make_failure(is_fault ? why.code : ErrorCode::Unavailable,
                               is_fault ? why.reason : Reason::RemoteDied, first,
                               "node %s is gone: %s", name.c_str(), why.message.c_str()));
  }
}

bool BetweenNodes::pass_on(std::uint64_t now_ns) {
  if (table_.notices().empty()) return false;
  // Telling may revoke, and with that nothing is noted.
  for (const CommunicatorTable::Notice& notice : std::exchange(table_.notices(), {})) {
    NodeAgreement* agreement = agreement_of(*notice.communicator);
    if (agreement == nullptr || !notice.communicator->ready()) continue;
    look_by(now_ns + NodeAgreement::kWaitingNs);
    switch (notice.kind) {
      case CommunicatorTable::Notice::Kind::Called:
        agreement->called(notice.seq);
        break;
      case CommunicatorTable::Notice::Kind::Matched:
        agreement->matched(notice.seq);
        if (std::ranges::find(offering_, agreement) == offering_.end())
          offering_.push_back(agreement);
        break;
      case CommunicatorTable::Notice::Kind::Refused:
        agreement->refused(notice.seq, notice.failure);
        break;
      case CommunicatorTable::Notice::Kind::Left:
        agreement->left(notice.seq, notice.failure);
        break;
    }
  }
  lively_until_ns_ = now_ns + kLivelyNs;
  return true;
}

// Where a link has no more room, whose turn it was comes last next time.
void BetweenNodes::offer_in_turn(std::uint64_t now_ns) {
  for (std::size_t left = offering_.size(); left > 0; --left) {
    NodeAgreement* const agreement = offering_.front();
    offering_.pop_front();
    if (agreement->offer_more(now_ns)) offering_.push_back(agreement);
  }
}

bool BetweenNodes::poll(std::uint64_t now_ns, bool looks_anyway) {
  // The turn's time may be from before what it has just read.
  if (!table_.notices().empty() || !offering_.empty()) now_ns = arcomm::now_ns();
  bool found = pass_on(now_ns);
  if (!offering_.empty()) offer_in_turn(now_ns);
  if (!links_.empty() && (looks_anyway || now_ns < lively_until_ns_ ||
                          now_ns - polled_ns_ >= kIdleNs || links_.is_sending())) {
    polled_ns_ = now_ns;
    if (links_.poll()) {
      found = true;
      lively_until_ns_ = now_ns + kLivelyNs;
    } else {
      lively_until_ns_ = std::min(lively_until_ns_, now_ns + kLivelyNs);
    }
  }
  table_.free_deserted();
  return found;
}

void BetweenNodes::tend(std::uint64_t now_ns) {
  if (now_ns < next_ns_) return;
  next_ns_ = NodeAgreement::kNever;
  for (const auto& [number, agreement] : agreements_) look_by(agreement->tend(now_ns));
  early_.forget_old(now_ns);
  if (!early_.empty()) look_by(now_ns + EarlyMessages::kLongestNs / 8);
}

void BetweenNodes::count_dropped() {
  NetDropCounts counts = early_.take_dropped();
  const auto add = [&](NetDrop why, std::uint64_t count) {
    counts[static_cast<std::size_t>(why)] += count;
  };
  add(NetDrop::OtherEpoch, std::exchange(other_epoch_, 0));
  if (links_.regions() != nullptr) {
    const net::Regions::News news = links_.regions()->take_news();
    add(NetDrop::Late, news.dropped);
    add(NetDrop::Damaged, news.damaged);
  }
  for (std::size_t i = 0; i < kNetDrops; ++i) {
    if (counts[i] != 0) metrics_.net_dropped[i].add(counts[i]);
  }
}

std::span<const std::byte> BetweenNodes::inline_data(const Communicator& communicator,
                                                     std::uint64_t seq, std::uint32_t node) const {
  return agreement_of(communicator)->inline_data(seq, node);
}

std::uint64_t BetweenNodes::turn_of(const Communicator& communicator, std::uint64_t seq) const {
  return agreement_of(communicator)->turn_of(seq);
}

}  // namespace arcomm

#include "daemon/exec/net/host_network.h"

#include <algorithm>
#include <cinttypes>
#include <functional>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/plan/network/coding_between_nodes.h"
#include "daemon/plan/recorded_algorithm.h"

namespace arcomm {
namespace {

// With more seats the ranges of an operation's ranks are not compared with those of others.
constexpr std::size_t kFewSeats = 8;

bool may_be_ring(const NetworkPolicy& policy, std::uint32_t nodes) {
  return policy.algorithm == NetAlgorithm::Ring ||
         (policy.algorithm == NetAlgorithm::Auto && nodes > kMostDirectNodes);
}

bool touch(const std::byte* a, std::uint64_t a_bytes, const std::byte* b, std::uint64_t b_bytes) {
  const std::less<const std::byte*> before;
  return before(a, b + b_bytes) && before(b, a + a_bytes);
}

// What it sends may be the result of one that has not run yet: clients call several in a row, which
// run in this order.
bool waits_for_others(const Communicator& communicator, const Arrival& arrival) {
  bool waits = false;
  const std::size_t seats = communicator.seats.size();
  communicator.board.for_each_open([&](const Arrival& other) {
    if (other.seq >= arrival.seq || waits) return;
    if (seats > kFewSeats) return void(waits = true);
    for (std::size_t from = 0; from < seats && !waits; ++from) {
      const Operation* writes = other.operations[from];
      for (std::size_t to = 0; to < seats && writes != nullptr && !waits; ++to) {
        waits = touch(writes->recv, other.signature.recv_bytes(), arrival.operations[to]->send,
                      arrival.signature.send_bytes());
      }
    }
  });
  return waits;
}

}  // namespace

HostNetwork::Member* HostNetwork::find(const Communicator& communicator) const {
  const auto found = members_.find(&communicator);
  return found == members_.end() ? nullptr : found->second.get();
}

NetworkQuestion HostNetwork::question_of(const Member& member, const Signature& signature) const {
  return {.count = signature.send_count,
          .dtype = signature.dtype,
          .op = signature.op,
          .nodes = member.group->nodes(),
          .one_seat_each = member.one_seat_each,
          .codec = signature.codec};
}

NetworkOperation& HostNetwork::operation_of(Member& member, NetworkAlgorithm algorithm) const {
  switch (algorithm) {
    case NetworkAlgorithm::Exchange:
      return member.exchange;
    case NetworkAlgorithm::Direct:
      return member.direct;
    case NetworkAlgorithm::Ring:
      break;
  }
  return member.ring;
}

Status HostNetwork::form(Communicator& communicator, const CommunicatorSpec& spec) {
  tend_leaving();
  const World& world = communicator.world;
  const bool one_seat_each = world.size() == world.nodes();
  const bool may_have_codec =
      spec.default_coding.codec != Codec::None ||
      (spec.default_coding.error_class.any() &&
       !coding_rows_between_nodes(
            {.ranks = static_cast<std::uint32_t>(world.size()), .nodes = world.nodes()},
            spec.policy)
            .empty());
  const bool has_rooms =
      !one_seat_each || may_be_ring(spec.policy, world.nodes()) || may_have_codec;
  auto group = NodeGroup::create(spec, has_rooms, pool_, links_);
  if (!group) return std::move(group).error();
  members_[&communicator] = std::make_unique<Member>(*std::move(group), one_seat_each);
  return {};
}

void HostNetwork::forget(Communicator& communicator) {
  const auto found = members_.find(&communicator);
  if (found == members_.end()) return;
  leaving_.push_back(std::move(found->second));
  members_.erase(found);
  tend_leaving();
}

void HostNetwork::tend_leaving() {
  std::erase_if(leaving_, [](const auto& member) { return member->group->is_let_go(); });
}

std::span<const std::byte> HostNetwork::inline_data(Communicator& communicator,
                                                    const Arrival& arrival) {
  Member* const member = find(communicator);
  if (member == nullptr || arrival.signature.is_empty()) return {};
  const NetworkQuestion question = question_of(*member, arrival.signature);
  const NetworkChoice choice = choose_network(question, member->group->policy());
  const std::uint64_t bytes = partial_bytes(question, choice.partials, question.count);
  if (choice.algorithm != NetworkAlgorithm::Exchange || bytes > net::kMostInlineBytes ||
      waits_for_others(communicator, arrival))
    return {};
  member->inlined[arrival.seq % kOfferedAhead] = {arrival.seq + 1, now_ns()};
  offered_room_.resize(net::kMostInlineBytes);
  offered_seats_.begin(communicator, arrival, question, choice.partials);
  return offered_seats_.partial(0, question.count, offered_room_.data());
}

Status HostNetwork::receive(Communicator& communicator, std::uint32_t node, net::MessageKind kind,
                            const net::FrameHeader& names, std::span<const std::byte> body) {
  Member* const member = find(communicator);
  return member == nullptr ? Status() : member->group->receive(node, kind, names, body);
}

Backend::Started HostNetwork::start(Communicator& communicator, const OfferedData& offered,
                                    std::uint64_t now_ns, Failure& failure) {
  failure = Failure{};
  const Arrival& arrival = *communicator.board.head();
  Member* const member = find(communicator);
  if (member == nullptr) {
    failure = make_failure(ErrorCode::Internal, Reason::Bug, kNoRank,
                           "the communicator has no staging between its nodes");
    return Backend::Started::Ended;
  }
  if (arrival.signature.is_empty()) return Backend::Started::Ended;
  const NetworkQuestion question = question_of(*member, arrival.signature);
  const NetworkChoice choice = choose_network(question, member->group->policy());
  for (std::size_t seat = 0; seat < communicator.seats.size(); ++seat) {
    FlightRecord& record = arrival.operations[seat]->record;
    record.matched_ns = arrival.matched_ns;
    record.launched_ns = now_ns;
    record.algorithm = recorded(choice.algorithm);
  }
  NodeGroup& group = *member->group;
  const Member::Inlined& inlined = member->inlined[arrival.seq % kOfferedAhead];
  const bool was_inline = inlined.behind == arrival.seq + 1;
  group.notes().begin(communicator, arrival, recorded(choice.algorithm));
  if (was_inline) {
    const std::uint64_t bytes = partial_bytes(question, choice.partials, question.count);
    group.notes().offered(inlined.at_ns, bytes * (question.nodes - 1));
  }
  NetworkOperation& operation = operation_of(*member, choice.algorithm);
  const Status begun = operation.begin({.communicator = communicator,
                                        .arrival = arrival,
                                        .question = question,
                                        .choice = choice,
                                        .offered = offered,
                                        .was_inline = was_inline});
  if (begun) {
    operation.advance();
    if (operation.is_done() && operation.let_go()) {
      note_steps(group);
      return Backend::Started::Ended;
    }
  } else {
    failure = Failure::from(begun.error());
  }
  running_.push_back({.communicator = &communicator,
                      .member = member,
                      .operation = &operation,
                      .is_told = !begun,
                      .failure = failure});
  return Backend::Started::Running;
}

bool HostNetwork::work() {
  if (!leaving_.empty()) tend_leaving();
  for (std::size_t tried = 0; tried < running_.size(); ++tried) {
    worked_last_ = (worked_last_ + 1) % running_.size();
    Run& run = running_[worked_last_];
    if (run.is_stopped || !run.failure.ok()) continue;
    run.has_moved = run.operation->advance();
    if (run.has_moved) return true;
    note_steps(*run.member->group);
  }
  return false;
}

bool HostNetwork::awaits_peers() const {
  return !running_.empty() && std::ranges::all_of(running_, [](const Run& run) {
    return !run.is_stopped && run.failure.ok() && !run.has_moved && !run.operation->is_done();
  });
}

bool HostNetwork::collect(std::vector<Outcome>& outcomes) {
  bool found = false;
  for (std::size_t i = 0; i < running_.size();) {
    Run& run = running_[i];
    const bool is_done = run.failure.ok() && run.operation->is_done();
    if (!is_done && !run.is_stopped) {
      note_damage(run);
      if (!run.failure.ok() && !std::exchange(run.is_told, true)) {
        outcomes.push_back(
            {.communicator = run.communicator, .failure = run.failure, .ended = false});
        found = true;
      }
      ++i;
      continue;
    }
    if (!run.operation->let_go()) {
      if (const std::uint64_t now = now_ns(); run.stalled.is_due(now))
        run.stalled.sever(links_, peers_of(run), now);
      ++i;
      continue;
    }
    note_steps(*run.member->group);
    // All of it was there: a failure that came too late to stop it has not touched the result.
    outcomes.push_back({.communicator = run.communicator,
                        .failure = is_done ? Failure{} : run.communicator->board.head()->failure});
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    found = true;
  }
  return found;
}

// Its bytes have left when nothing is on loan any more.
void HostNetwork::note_steps(NodeGroup& group) {
  StepNotes& notes = group.notes();
  if (notes.is_out() && group.partials().are_back() && group.results().are_back()) notes.all_back();
  if (recorder_ != nullptr) notes.write(*recorder_);
}

void HostNetwork::note_damage(Run& run) {
  if (!run.failure.ok()) return;
  net::Regions::Damage damage = run.member->group->damage();
  if (damage.count == 0) damage = run.operation->damage();
  if (damage.count == 0) return;
  run.failure = make_failure(ErrorCode::DataLoss, Reason::Corrupt, kNoRank,
                             "bytes of seq %" PRIu64
                             " from another node do not fit their checksum: was memory changed "
                             "while it was sent?",
                             damage.first_seq);
}

void HostNetwork::stop(Communicator& communicator) {
  for (Run& run : running_) {
    if (run.communicator != &communicator || run.is_stopped) continue;
    run.is_stopped = true;
    run.stalled.begin(links_, peers_of(run), now_ns());
  }
}

std::vector<StalledLinks::Peer> HostNetwork::peers_of(const Run& run) {
  const NodeGroup& group = *run.member->group;
  std::vector<StalledLinks::Peer> peers;
  group.for_each_peer([&](std::uint32_t node) {
    const NodeSpec& peer = group.spec(node);
    peers.push_back({.id = peer.peer,
                     .name = peer.name,
                     .holds = !group.partials().are_back(node) || !group.results().are_back(node)});
  });
  return peers;
}

}  // namespace arcomm

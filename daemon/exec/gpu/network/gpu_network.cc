#include "daemon/exec/gpu/network/gpu_network.h"

#include <algorithm>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/exec/gpu/network/network_request.h"
#include "daemon/plan/recorded_algorithm.h"
#include "daemon/telemetry/log/log.h"
#include "transport/device/host/host_device.h"

namespace arcomm {
namespace {

constexpr int kMostRounds = 3;  // of the engine in one call: links and clients are looked at, too

}  // namespace

Result<std::unique_ptr<GpuNetwork>> GpuNetwork::create(GpuGroups& groups,
                                                       const BufferRegistry& buffers, Links& links,
                                                       Staging staging) {
  Result<std::unique_ptr<HostDevice>> host = HostDevice::create(HostDeviceOptions{});
  if (!host) return std::move(host).error();
  std::unique_ptr<GpuNetwork> network(
      new GpuNetwork(groups, buffers, links, std::move(host).value(), staging.bytes));
  // The first communicator that spans nodes asks again: what fills a GPU now may have gone by then.
  if (const Status pinned = staging.at_once ? network->pin() : Status(); !pinned)
    log::warn("communicators of GPUs cannot span nodes yet: {}", pinned.error().message);
  return network;
}

GpuNetwork::GpuNetwork(GpuGroups& groups, const BufferRegistry& buffers, Links& links,
                       std::unique_ptr<Device> host, std::uint64_t staging_bytes)
    : groups_(groups),
      buffers_(buffers),
      links_(links),
      host_(std::move(host)),
      pool_(*host_, staging_bytes),
      early_(groups, buffers) {
  groups_.quiescer.network_has_left = [this] { return has_left_gpus(); };
}

GpuNetwork::~GpuNetwork() {
  groups_.quiescer.network_has_left = {};
}

Status GpuNetwork::pin() {
  if (is_pinned_) return {};
  ARC_RETURN_IF_ERROR(pool_.open());
  Status pinned;
  const Status quiesced = groups_.quiescer.quiesced([&] {
    for (const auto& engine : groups_.engines) {
      if (!pinned) return;
      if (const Status loaded = engine.launcher().load_network(); !loaded)
        pinned = error(loaded.error().code, loaded.error().reason, engine.name(), ": ",
                       loaded.error().message);
    }
    // Last, as it cannot be done again.
    if (pinned) pinned = groups_.engines.front().launcher().pin(pool_.memory());
  });
  ARC_RETURN_IF_ERROR(quiesced);
  is_pinned_ = pinned.ok();
  return pinned;
}

GpuNetwork::Member* GpuNetwork::find(const Communicator& communicator) const {
  const auto found = members_.find(&communicator);
  return found == members_.end() ? nullptr : found->second.get();
}

Status GpuNetwork::form(Communicator& communicator, const CommunicatorSpec& spec) {
  tend_leaving();
  ARC_RETURN_IF_ERROR(pin());
  GpuGroup& group = *gpus_of(communicator);
  auto member = std::make_unique<Member>();
  member->group = ++last_group_;
  member->number = spec.communicator;
  member->communicator = &communicator;
  const NetworkFifos::Parts parts{.spec = spec,
                                  .member = group.members.front(),
                                  .pool = pool_,
                                  .links = links_,
                                  .engine = engine_,
                                  .group = member->group};
  member->fifos = std::make_unique<NetworkFifos>(parts);
  member->places = std::make_unique<NodePlaces>(
      NodePlaces::Parts{.spec = spec,
                        .place = group.place,
                        .room = groups_.room,
                        .links = links_,
                        .is_in_queues = [&group] { return group.is_in_queues(); }});
  const Status opened = member->fifos->open(parts);
  members_[&communicator] = std::move(member);
  if (!opened) forget(communicator);
  return opened;
}

void GpuNetwork::forget(Communicator& communicator) {
  const auto found = members_.find(&communicator);
  if (found == members_.end()) return;
  engine_.fail_group(found->second->group,
                     error(ErrorCode::Aborted, Reason::Revoked, "the communicator is gone"));
  early_.forget(communicator);
  found->second->places->end();
  found->second->places.reset();
  found->second->communicator = nullptr;
  leaving_.push_back(std::move(found->second));
  members_.erase(found);
  tend_leaving();
}

void GpuNetwork::tend_leaving() {
  if (leaving_.empty()) return;
  engine_.progress(now_ns());
  std::erase_if(leaving_, [](const auto& member) { return member->fifos->is_let_go(); });
}

Status GpuNetwork::receive(Communicator& communicator, std::uint32_t node, net::MessageKind kind,
                           const net::FrameHeader& names, std::span<const std::byte> body) {
  Member* const member = find(communicator);
  if (member == nullptr) return {};
  const bool is_of_places = kind == net::MessageKind::Placed || kind == net::MessageKind::Recall ||
                            kind == net::MessageKind::Recalled;
  return is_of_places ? member->places->receive(node, kind, names.seq)
                      : member->fifos->windows().receive(node, kind, body);
}

NetworkExecutor::Offering GpuNetwork::offering(Communicator& communicator, const Arrival& arrival) {
  Member* const member = find(communicator);
  if (member == nullptr) return {};
  const bool is_oldest = communicator.board.oldest_open()->seq == arrival.seq;
  clock_ = std::min(clock_ + 1, net::kMostTurn);
  return {.turn = clock_,
          .is_placed = member->places->offer(arrival.seq, blocks_of(*member, arrival), is_oldest)};
}

void GpuNetwork::offer_came(Communicator& communicator, std::uint32_t node, std::uint64_t seq,
                            const net::OfferBody& offer) {
  clock_ = std::max(clock_, offer.turn);
  if (Member* const member = find(communicator))
    member->places->offer_came(node, seq, offer.is_placed != 0);
}

std::uint32_t GpuNetwork::blocks_of(const Member& member, const Arrival& arrival) {
  if (arrival.signature.is_empty()) return 0;
  return member.fifos->cut_of(arrival.signature).blocks();
}

void GpuNetwork::group_failed(std::uint64_t group, const Error& why) {
  for (const auto& [communicator, member] : members_) {
    if (member->group != group || std::exchange(member->has_failed, true)) continue;
    member->failure = Failure::from(why);
  }
}

Backend::Started GpuNetwork::start(Communicator& communicator, const OfferedData& offered,
                                   std::uint64_t now_ns, Failure& failure) {
  failure = Failure{};
  const Arrival& arrival = *communicator.board.head();
  const GpuGroup& group = *gpus_of(communicator);
  for (std::size_t seat = 0; seat < group.members.size(); ++seat) {
    FlightRecord& record = arrival.operations[seat]->record;
    record.matched_ns = arrival.matched_ns;
    record.launched_ns = now_ns;
    if (!arrival.signature.is_empty()) record.algorithm = recorded(GpuExchange::kAlgorithm);
  }
  Member* const member = find(communicator);
  if (member == nullptr || member->has_failed) {
    failure = member != nullptr ? member->failure
                                : make_failure(ErrorCode::Internal, Reason::Bug, kNoRank,
                                               "the communicator has no staging between its nodes");
    return Backend::Started::Ended;
  }
  if (arrival.signature.is_empty()) {
    member->places->ended(arrival.seq);
    if (const Status told = tell_all_done(group, arrival); !told)
      failure = Failure::from(told.error());
    return Backend::Started::Ended;
  }
  member->fifos->windows().notes().begin(communicator, arrival, recorded(GpuExchange::kAlgorithm));
  member->agreed_after_ns = arrival.agreed_ns - std::min(arrival.agreed_ns, arrival.matched_ns);
  running_.push_back({.communicator = &communicator,
                      .member = member,
                      .turn = offered.turn_of(communicator, arrival.seq),
                      .failure = {}});
  launch(running_.back());
  return Backend::Started::Running;
}

void GpuNetwork::offered(Communicator& communicator, const Arrival& arrival) {
  Member* const member = find(communicator);
  if (member == nullptr || member->has_failed || arrival.signature.is_empty() ||
      !early_.pays(member->agreed_after_ns))
    return;
  early_.want(communicator, *member->fifos, arrival, now_ns());
}

// What its peers send may come to its kernel, and what that stages goes to them.
Status GpuNetwork::order(const Run& run) {
  const Arrival& arrival = *run.communicator->board.head();
  const std::uint64_t now = now_ns();
  return run.member->fifos->order(arrival.signature,
                                  now + remaining_ns(arrival, now) + kNetworkGraceNs);
}

bool GpuNetwork::may_begin(const Run& run) {
  const Arrival& arrival = *run.communicator->board.head();
  NodePlaces& places = *run.member->places;
  const std::uint32_t blocks = blocks_of(*run.member, arrival);
  const bool has_place =
      places.enter(arrival.seq, blocks) ||
      (groups_.speculator.make_room(places.place()) && places.enter(arrival.seq, blocks));
  return has_place && places.may_begin(arrival.seq);
}

bool GpuNetwork::launch(Run& run) {
  if (!may_begin(run)) return false;
  const bool has_kernel = early_.agreed(*run.communicator);
  // One that was let go of has not left yet.
  if (!has_kernel && early_.has_kernel(*run.communicator)) return false;
  const Arrival& arrival = *run.communicator->board.head();
  run.member->places->begin(arrival.seq);
  run.waits = false;
  gpus_of(*run.communicator)->has_run = true;
  Status launched;
  if (!has_kernel)
    launched = launch_between_nodes(*run.communicator, buffers_, *run.member->fifos, now_ns());
  if (launched) launched = order(run);
  if (launched) return true;
  log::error("an operation of {} bytes between nodes could not be launched: {}",
             arrival.signature.send_bytes(), launched.error().message);
  fail(run, Failure::from(launched.error()));
  return true;
}

void GpuNetwork::fail(Run& run, const Failure& why) {
  if (run.failure.ok()) run.failure = why;
  engine_.fail_group(run.member->group, why.to_error());
}

bool GpuNetwork::has_left_gpus() {
  engine_.progress(now_ns());
  const bool none_early = early_.have_left();
  return none_early &&
         std::ranges::all_of(leaving_,
                             [](const auto& member) { return member->fifos->has_ended(); }) &&
         std::ranges::all_of(
             running_, [](const Run& run) { return run.waits || run.member->fifos->has_ended(); });
}

bool GpuNetwork::waits_for_older(const Run& run) const {
  const auto age_of = [](const Run& one) { return std::pair(one.turn, one.member->number); };
  const std::vector<const LaunchPlace*> beside =
      groups_.room.waiting_beside(gpus_of(*run.communicator)->place);
  return std::ranges::any_of(running_, [&](const Run& other) {
    const LaunchPlace* const place = &gpus_of(*other.communicator)->place;
    return other.waits && !other.is_stopped && age_of(other) < age_of(run) &&
           std::ranges::find(beside, place) != beside.end();
  });
}

void GpuNetwork::recall_places() {
  const bool has_wish = groups_.room.take_wish();
  for (const auto& [communicator, member] : members_) {
    NodePlaces& places = *member->places;
    const LaunchPlace& place = places.place();
    if (!place.is_promised) continue;
    const bool is_wanted = groups_.room.is_wanted(place) || (has_wish && !place.is_wide);
    if (!communicator->running() && places.is_forgotten(communicator->board)) {
      places.give_up();
    } else if (is_wanted && places.may_recall()) {
      const auto run = std::ranges::find(running_, communicator, &Run::communicator);
      if (run == running_.end() || !run->waits || waits_for_older(*run)) places.recall();
    }
  }
}

bool GpuNetwork::work() {
  if (!leaving_.empty()) tend_leaving();
  bool moved = !early_.empty() && early_.work(now_ns());
  for (Run& run : running_) {
    if (run.waits && !run.is_stopped && run.failure.ok()) moved |= launch(run);
  }
  recall_places();
  if (running_.empty()) return moved;
  // A step goes through several phases: what is staged leaves, and what has come is told, at once.
  for (int round = 0; round < kMostRounds && engine_.progress(now_ns()); ++round) moved = true;
  if (!moved) std::ranges::for_each(running_, [this](const Run& run) { note_steps(run); });
  return moved;
}

// Its bytes have left when nothing is on loan any more.
void GpuNetwork::note_steps(const Run& run) {
  LaneWindows& windows = run.member->fifos->windows();
  StepNotes& notes = windows.notes();
  if (notes.is_out() && windows.are_back()) notes.all_back();
  if (recorder_ != nullptr) notes.write(*recorder_);
}

void GpuNetwork::look_at(Run& run) {
  Member& member = *run.member;
  if (member.has_failed && run.failure.ok()) run.failure = member.failure;
  if (run.waits || !member.fifos->has_ended()) return;
  const Done verdict = member.fifos->verdict();
  if (verdict.code == 0 || member.has_failed) return;
  fail(run, failure_of_kernel(verdict, *run.communicator, run.communicator->board.head()->seq));
}

bool GpuNetwork::has_ended(const Run& run) const {
  if (run.waits || run.member->fifos->has_ended()) return true;
  // Nothing runs there any more, and nothing will.
  return gpus_of(*run.communicator)->members.front().engine->broken();
}

bool GpuNetwork::collect(std::vector<Outcome>& outcomes) {
  const std::size_t before = outcomes.size();
  for (std::size_t i = 0; i < running_.size();) {
    Run& run = running_[i];
    NetworkFifos& fifos = *run.member->fifos;
    look_at(run);
    const bool is_well = !run.waits && fifos.has_ended() && fifos.verdict().code == 0;
    const bool is_done = is_well && fifos.is_settled();
    const bool is_over = run.is_stopped || run.member->has_failed || !run.failure.ok();
    if (!is_done && !is_over) {
      ++i;
      continue;
    }
    if (!run.failure.ok() && !std::exchange(run.is_told, true) && !run.is_stopped)
      outcomes.push_back(
          {.communicator = run.communicator, .failure = run.failure, .ended = false});
    if (!is_done) {
      begin_to_end(run);
      if (!has_ended(run) || !(run.waits || fifos.windows().is_let_go())) {
        // Bytes may be back; the kernel is not.
        if (const std::uint64_t now = now_ns(); run.stalled.is_due(now) && has_ended(run))
          run.stalled.sever(links_, peers_of(run), now);
        ++i;
        continue;
      }
    }
    // All of it was there: a failure that came too late to stop it has not touched the result.
    const Failure& told = run.communicator->board.head()->failure;
    outcomes.push_back({.communicator = run.communicator,
                        .failure = is_done      ? Failure{}
                                   : !told.ok() ? told
                                                : run.failure});
    note_steps(run);
    leave_room(run);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return outcomes.size() != before;
}

void GpuNetwork::leave_room(const Run& run) {
  gpus_of(*run.communicator)->has_run = false;
  if (run.communicator->ready()) {
    run.member->places->ended(run.communicator->board.head()->seq);
  } else {
    run.member->places->end();
  }
}

void GpuNetwork::stop(Communicator& communicator) {
  Member* const member = find(communicator);
  if (member == nullptr) return;
  for (Run& run : running_) {
    if (run.communicator != &communicator || run.is_stopped) continue;
    run.is_stopped = true;
    begin_to_end(run);
  }
  early_.let_go(communicator);
  member->places->end();
  engine_.fail_group(member->group, communicator.revoked.to_error());
}

std::vector<StalledLinks::Peer> GpuNetwork::peers_of(const Run& run) {
  const LaneWindows& windows = run.member->fifos->windows();
  std::vector<StalledLinks::Peer> peers;
  for (std::uint32_t node = 0; node < windows.nodes(); ++node) {
    if (node == windows.here()) continue;
    const PeerWire& wire = windows.wire(node);
    peers.push_back({.id = wire.peer(), .name = wire.name(), .holds = !wire.are_back()});
  }
  return peers;
}

void GpuNetwork::begin_to_end(Run& run) const {
  if (!run.stalled.has_begun()) run.stalled.begin(links_, peers_of(run), now_ns());
}

}  // namespace arcomm

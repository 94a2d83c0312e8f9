#include "daemon/control/peers/meetings/meeting_messages.h"

#include <algorithm>
#include <cstring>
#include <ratio>
#include <utility>

#include "daemon/control/session_ledger.h"
#include "daemon/plan/network/gpu_exchange.h"
#include "proto/text.h"

namespace arcomm {
namespace {

constexpr std::size_t kPeerWhyBytes = 400;
constexpr std::size_t kPeerAddressBytes = 280;  // a host name, and a port
constexpr std::uint64_t kMostRemainingMs = 24ull * 3600 * 1000;
// Of what a peer says about rings: above what any setting may be.
constexpr std::uint64_t kMostRingBytes = 1ull << 40, kMostRingChunks = 65'536, kMostOfBlocks = 1024;

template <typename... Parts>
Error no_message(const Parts&... parts) {
  return error(ErrorCode::InvalidArgument, Reason::BadValue,
               "a peer's message is none: are all daemons of one version? ", parts...);
}

MeetingClock::time_point deadline_of(std::uint64_t remaining_ms, MeetingClock::time_point now) {
  return now + std::chrono::milliseconds(std::min(remaining_ms, kMostRemainingMs));
}

Status check_peer_ranks(int ranks) {
  if (ranks >= 1 && ranks <= kMaxRanks) return {};
  return no_message("it is about ", ranks, " ranks: 1 to ", kMaxRanks, " are allowed");
}

}  // namespace

Result<UniqueIdBytes> read_unique_id(const std::string& bytes) {
  UniqueIdBytes unique_id;
  if (bytes.size() != unique_id.size()) {
    return no_message("a unique id has ", unique_id.size(), " bytes; this one has ", bytes.size());
  }
  std::memcpy(unique_id.data(), bytes.data(), unique_id.size());
  return unique_id;
}

void write_unique_id(const UniqueIdBytes& unique_id, std::string& bytes) {
  bytes.assign(reinterpret_cast<const char*>(unique_id.data()), unique_id.size());
}

std::optional<Error> read_error(std::uint32_t code, std::uint32_t reason, int culprit,
                                const std::string& why) {
  if (code == 0) return std::nullopt;
  Error read{error_code_from(code), reason_from(reason), safe_text(why, kPeerWhyBytes),
             culprit >= 0 && culprit < kMaxRanks ? culprit : kNoRank};
  if (read.code == ErrorCode::Ok) read.code = ErrorCode::Unknown;
  return read;
}

MeetingClock::time_point on_grid(MeetingClock::time_point when) {
  return std::chrono::ceil<std::chrono::duration<std::int64_t, std::ratio<1, 20>>>(when);
}

std::uint64_t remaining_ms(MeetingClock::time_point deadline, MeetingClock::time_point now) {
  if (deadline <= now) return 0;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now);
  return std::min(static_cast<std::uint64_t>(left.count()), kMostRemainingMs);
}

Result<Announcement> read(const v1::AnnounceRequest& request, MeetingClock::time_point now) {
  Result<UniqueIdBytes> unique_id = read_unique_id(request.unique_id());
  if (!unique_id) return unique_id.error();
  ARC_RETURN_IF_ERROR(check_peer_ranks(request.ranks()));
  if (request.callers_size() > request.ranks()) {
    return no_message(request.callers_size(), " ranks of ", request.ranks(), " have called");
  }
  Announcement read{
      .unique_id = *unique_id,
      .ranks = request.ranks(),
      .uid = request.uid(),
      .worker = safe_text(request.worker(), kNameBytes),
      .remembered_epoch = request.remembered_epoch(),
      .version = request.version(),
      .segment_limit_bytes = request.segment_limit_bytes(),
      .default_coding = {.codec = static_cast<Codec>(request.default_codec()),
                         .error_class = {request.default_least_snr_db(),
                                         request.default_most_relative_error()}},
      .gpu_codecs = request.gpu_codecs(),
      .coding_rules = request.coding_rules(),
      .callers = {},
      .failure = read_error(request.code(), request.reason(), request.culprit(), request.why())};
  if (request.default_codec() > 0xff || find_fault(read.default_coding) != nullptr)
    return no_message("default codec ", request.default_codec(), " or its error class is none");
  for (const v1::AnnounceRequest::Caller& caller : request.callers()) {
    if (caller.rank() < 0 || caller.rank() >= request.ranks())
      return no_message("it names rank ", caller.rank(), " of ", request.ranks());
    const bool is_new =
        read.callers
            .emplace(caller.rank(),
                     Announcement::Caller{.pid = caller.pid(),
                                          .device = safe_text(caller.device(), kNameBytes),
                                          .deadline = deadline_of(caller.remaining_ms(), now)})
            .second;
    if (!is_new) return no_message("it names rank ", caller.rank(), " twice");
  }
  return read;
}

Result<PlannedCommunicator> read(const v1::FormRequest& request, PeerId self,
                                 MeetingClock::time_point now) {
  Result<UniqueIdBytes> unique_id = read_unique_id(request.unique_id());
  if (!unique_id) return unique_id.error();
  const int ranks = request.rank_devices_size();
  ARC_RETURN_IF_ERROR(check_peer_ranks(ranks));
  if (request.nodes_size() < 2 || request.nodes_size() > ranks)
    return no_message(request.nodes_size(), " nodes have ", ranks, " ranks");
  if (request.epoch() == 0 || request.communicator() == 0)
    return no_message("a communicator has epoch ", request.epoch(), " and number ",
                      request.communicator());
  PlannedCommunicator plan;
  plan.spec.unique_id = *unique_id;
  plan.spec.epoch = request.epoch();
  plan.spec.communicator = request.communicator();
  plan.segment_limit_bytes = request.segment_limit_bytes();
  plan.deadline = deadline_of(request.remaining_ms(), now);
  Result<NetworkPolicy> policy = read(request.policy());
  if (!policy) return policy.error();
  plan.spec.policy = *policy;
  for (const std::string& device : request.rank_devices())
    plan.rank_devices.push_back(safe_text(device, kNameBytes));

  constexpr auto kNowhere = static_cast<std::uint32_t>(-1);
  plan.spec.node_of_rank.assign(static_cast<std::size_t>(ranks), kNowhere);
  bool is_here = false;
  for (const v1::FormRequest::Node& node : request.nodes()) {
    const auto index = static_cast<std::uint32_t>(plan.nodes.size());
    const PeerId instance = node.identity().instance();
    const bool is_known =
        std::ranges::find(plan.nodes, instance, &PeerNode::instance) != plan.nodes.end();
    if (instance == 0 || is_known) return no_message("node ", index, " is nobody, or named twice");
    plan.nodes.push_back({.address = safe_text(node.identity().address(), kPeerAddressBytes),
                          .name = safe_text(node.identity().name(), kNameBytes),
                          .instance = instance});
    plan.spec.nodes.push_back({.peer = instance, .name = plan.nodes.back().name});
    for (const int rank : node.ranks()) {
      if (rank < 0 || rank >= ranks) return no_message("it names rank ", rank, " of ", ranks);
      std::uint32_t& place = plan.spec.node_of_rank[static_cast<std::size_t>(rank)];
      if (place != kNowhere) return no_message("it names rank ", rank, " twice");
      place = index;
    }
    if (instance != self) continue;
    is_here = true;
    plan.spec.here = index;
    plan.here.assign(node.ranks().begin(), node.ranks().end());
    std::ranges::sort(plan.here);
  }
  if (!is_here) return no_message("this node is none of the communicator's");
  if (std::ranges::find(plan.spec.node_of_rank, kNowhere) != plan.spec.node_of_rank.end())
    return no_message("a rank is on no node");
  // The order of nodes is the order of the reduction, so it must be everybody's.
  std::uint32_t seen = 0;
  for (const std::uint32_t node : plan.spec.node_of_rank) {
    if (node > seen) return no_message("nodes are not in the order of their lowest ranks");
    if (node == seen) ++seen;
  }
  if (seen != plan.nodes.size()) return no_message("a node is without a rank");
  return plan;
}

v1::NetworkPolicy write(const NetworkPolicy& policy) {
  v1::NetworkPolicy wire;
  wire.set_order(static_cast<std::uint32_t>(policy.order));
  wire.set_partials(static_cast<std::uint32_t>(policy.partials));
  wire.set_algorithm(static_cast<std::uint32_t>(policy.algorithm));
  wire.set_chunk_bytes(policy.ring.chunk_bytes);
  wire.set_num_chunks(policy.ring.num_chunks);
  wire.set_max_bdp_bytes(policy.ring.max_bdp_bytes);
  wire.set_min_shard_bytes(policy.ring.min_shard_bytes);
  wire.set_bidirectional_max_bytes(policy.ring.bidirectional_max_bytes);
  wire.set_max_blocks(policy.ring.max_blocks);
  wire.set_threads(policy.ring.threads);
  wire.set_step_bytes(policy.step_bytes);
  wire.set_gpu_lanes(policy.gpu_lanes);
  wire.set_gpu_codecs(policy.gpu_codecs);
  wire.set_no_gpu_codecs_on(policy.no_gpu_codecs_on);
  wire.set_coding_rules(policy.coding_rules);
  wire.set_link_bytes_per_second(policy.link_bytes_per_second);
  return wire;
}

Result<NetworkPolicy> read(const v1::NetworkPolicy& wire) {
  if (wire.order() > static_cast<std::uint32_t>(NetOrder::OfRing) ||
      wire.partials() > static_cast<std::uint32_t>(NetPartials::DType) ||
      wire.algorithm() > static_cast<std::uint32_t>(NetAlgorithm::Ring)) {
    return no_message("order ", wire.order(), ", partials ", wire.partials(), " or algorithm ",
                      wire.algorithm(), " is not known");
  }
  const std::uint64_t step_bytes = wire.step_bytes() == 0 ? kUsualStepBytes : wire.step_bytes();
  // What no settings say and nothing measures, and what sums could not hold.
  if (wire.chunk_bytes() > kMostRingBytes || wire.max_bdp_bytes() > kMostRingBytes ||
      wire.min_shard_bytes() > kMostRingBytes || wire.num_chunks() > kMostRingChunks ||
      wire.max_blocks() > kMostOfBlocks || wire.threads() > kMostOfBlocks ||
      wire.bidirectional_max_bytes() > static_cast<std::int64_t>(kMostRingBytes) ||
      step_bytes < kLeastStepBytes || step_bytes > kMostStepBytes ||
      wire.gpu_lanes() > GpuExchange::kMostLanes) {
    return no_message("a ring of ", wire.chunk_bytes(), " bytes x ", wire.num_chunks(), " chunks, ",
                      wire.max_blocks(), " blocks of ", wire.threads(), " threads, with ",
                      wire.max_bdp_bytes(), " bytes under way and steps of ", step_bytes, ", or ",
                      wire.gpu_lanes(), " lanes of GPUs");
  }
  NetworkPolicy policy{.order = static_cast<NetOrder>(wire.order()),
                       .partials = static_cast<NetPartials>(wire.partials()),
                       .algorithm = static_cast<NetAlgorithm>(wire.algorithm()),
                       .ring = {}};
  policy.ring.chunk_bytes = wire.chunk_bytes();
  policy.ring.num_chunks = wire.num_chunks();
  policy.ring.max_bdp_bytes = wire.max_bdp_bytes();
  policy.ring.min_shard_bytes = wire.min_shard_bytes();
  policy.ring.bidirectional_max_bytes = wire.bidirectional_max_bytes();
  policy.ring.max_blocks = wire.max_blocks();
  policy.ring.threads = wire.threads();
  policy.step_bytes = step_bytes;
  policy.gpu_lanes = wire.gpu_lanes();
  policy.gpu_codecs = wire.gpu_codecs();
  if (!policy.gpu_codecs)
    policy.no_gpu_codecs_on = safe_text(wire.no_gpu_codecs_on(), kPeerAddressBytes + kNameBytes);
  policy.coding_rules = wire.coding_rules();
  policy.link_bytes_per_second = wire.link_bytes_per_second();
  return policy;
}

}  // namespace arcomm

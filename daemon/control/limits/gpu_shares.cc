#include "daemon/control/limits/gpu_shares.h"

#include <algorithm>
#include <optional>

#include "daemon/exec/specs.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "proto/gpu/device_mailbox.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kGreed = 3;  // one alone gets three quarters

constexpr std::size_t index(GpuResource what) {
  return static_cast<std::size_t>(what);
}

// Nothing of what has no limit of its own.
std::optional<NodeResource> resource_of(GpuResource what) {
  switch (what) {
    case GpuResource::Communicators:
      return NodeResource::GpuCommunicators;
    case GpuResource::Ranks:
      return NodeResource::GpuRanks;
    case GpuResource::Bytes:
      return NodeResource::GpuBytes;
    case GpuResource::InStream:
      break;
  }
  return std::nullopt;
}

std::uint64_t memory_limit(std::uint64_t memory, std::uint64_t set) {
  const std::uint64_t there = memory == 0 ? FairShare::kNoLimit : memory;
  return set == 0 ? there : std::min(there, set);
}

}  // namespace

std::string_view text_of(GpuResource resource) {
  switch (resource) {
    case GpuResource::Communicators:
      return "communicators";
    case GpuResource::Ranks:
      return "ranks";
    case GpuResource::Bytes:
      return "bytes";
    case GpuResource::InStream:
      return "in_stream_ranks";
  }
  return "unknown";
}

GpuShares::Share::Share(GpuShares& owner, FairShare& of, GpuResource what, uid_t uid,
                        std::uint64_t amount)
    : owner_(owner), of_(of), what_(what), uid_(uid), amount_(amount) {
  of_.take(uid_, amount_);
  owner_.count(what_, static_cast<std::int64_t>(amount_));
}

GpuShares::Share::~Share() {
  of_.give_back(uid_, amount_);
  owner_.count(what_, -static_cast<std::int64_t>(amount_));
}

GpuShares::GpuShares(Metrics& metrics, const std::map<std::string, std::uint64_t>& memory)
    : metrics_(metrics), memory_(memory) {
  for (const auto& [gpu, bytes] : memory_) {
    OfGpu& of = by_gpu_[gpu];
    of[index(GpuResource::Communicators)].use_limits({.node = kMaxDeviceMembers, .greed = kGreed});
    of[index(GpuResource::Ranks)].use_limits({.node = kMaxRanksOfGpu, .greed = kGreed});
  }
  const auto gpus = static_cast<std::int64_t>(by_gpu_.size());
  metrics_.node(NodeResource::GpuCommunicators).limit.set(gpus * kMaxDeviceMembers);
  metrics_.node(NodeResource::GpuRanks).limit.set(gpus * kMaxRanksOfGpu);
  use_memory_limit(0);
}

void GpuShares::use_memory_limit(std::uint64_t bytes) {
  std::uint64_t all = 0;
  for (auto& [gpu, of] : by_gpu_) {
    const std::uint64_t limit = memory_limit(memory_.at(gpu), bytes);
    of[index(GpuResource::Bytes)].use_limits({.node = limit, .greed = kGreed});
    if (limit != FairShare::kNoLimit) all += limit;
  }
  metrics_.node(NodeResource::GpuBytes).limit.set(static_cast<std::int64_t>(all));
}

Result<GpuShares::SharePtr> GpuShares::take(uid_t uid, const std::string& gpu, GpuResource what,
                                            std::uint64_t amount) {
  FairShare& share = by_gpu_[gpu][index(what)];
  if (share.ask(uid, amount) == FairShare::Answer::Yes)
    return std::make_shared<Share>(*this, share, what, uid, amount);
  const Reason reason = what == GpuResource::Bytes ? Reason::OutOfMemory : Reason::Quota;
  metrics_.count_rejected(reason);
  return error(ErrorCode::ResourceExhausted, reason, gpu, " is short of ", text_of(what),
               what == GpuResource::Bytes ? " (quota.node_gpu_bytes)" : "", ": all users have ",
               share.total(), " of ", share.limits().node, ", of which uid ", uid,
               " and its range have ", share.of_tenant(uid), ", and ", amount,
               " more would be above their fair share of it: release some first, or ask the "
               "operator who has the others");
}

GpuShares::SharePtr GpuShares::note(uid_t uid, const std::string& gpu, GpuResource what,
                                    std::uint64_t amount) {
  return std::make_shared<Share>(*this, by_gpu_[gpu][index(what)], what, uid, amount);
}

bool GpuShares::has_all(uid_t uid, const std::string& gpu, GpuResource what,
                        std::uint64_t besides) const {
  const auto found = by_gpu_.find(gpu);
  if (found == by_gpu_.end()) return false;
  const FairShare& share = found->second[index(what)];
  return share.total() > besides && share.of_tenant(uid) == share.total();
}

void GpuShares::count(GpuResource what, std::int64_t amount) {
  if (const std::optional<NodeResource> resource = resource_of(what))
    metrics_.node(*resource).used.add(amount);
}

}  // namespace arcomm

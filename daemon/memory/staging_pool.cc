#include "daemon/memory/staging_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "transport/device/device.h"

namespace arcomm {

Status StagingPool::open() {
  if (memory_) return {};
  auto memory = device_.allocate(bytes_);
  if (!memory) {
    return error(memory.error().code, memory.error().reason, "net.staging_bytes (", bytes_,
                 ") cannot be had: ", memory.error().message);
  }
  memory_ = *std::move(memory);
  share_.use_limits({.node = bytes_ / kGrain, .per_uid = FairShare::kNoLimit, .greed = 1});
  free_[0] = bytes_ / kGrain * kGrain;
  return {};
}

Result<std::span<std::byte>> StagingPool::take(uid_t uid, std::uint64_t bytes) {
  ARC_RETURN_IF_ERROR(open());
  if (bytes > bytes_) return refusal(uid, bytes, false);
  const std::uint64_t grains = std::max<std::uint64_t>((bytes + kGrain - 1) / kGrain, 1);
  const std::uint64_t length = grains * kGrain;
  if (share_.ask(uid, grains) != FairShare::Answer::Yes) return refusal(uid, bytes, true);
  const auto place = std::find_if(free_.begin(), free_.end(),
                                  [&](const auto& part) { return part.second >= length; });
  if (place == free_.end()) return refusal(uid, bytes, false);
  const auto [offset, room] = *place;
  free_.erase(place);
  if (room > length) free_[offset + length] = room - length;
  share_.take(uid, grains);
  return std::span(memory_.data() + offset, length);
}

void StagingPool::give_back(uid_t uid, std::span<std::byte> part) {
  if (part.empty()) return;
  share_.give_back(uid, part.size() / kGrain);
  const auto offset = static_cast<std::uint64_t>(part.data() - memory_.data());
  const auto here = free_.emplace(offset, part.size()).first;
  if (const auto behind = std::next(here);
      behind != free_.end() && here->first + here->second == behind->first) {
    here->second += behind->second;
    free_.erase(behind);
  }
  if (here == free_.begin()) return;
  const auto before = std::prev(here);
  if (before->first + before->second != here->first) return;
  before->second += here->second;
  free_.erase(here);
}

Error StagingPool::refusal(uid_t uid, std::uint64_t bytes, bool is_share) const {
  const FairShare::Holder most = share_.find_largest();
  return error(ErrorCode::ResourceExhausted, Reason::Quota, "a communicator needs ", bytes,
               " bytes of staging, and of net.staging_bytes (", bytes_, ") ",
               share_.total() * kGrain, " are taken, ", share_.of_uid(uid) * kGrain, " by uid ",
               uid, " itself and the most, ", most.amount * kGrain, ", by uid ", most.uid,
               is_share ? ": this would be more than its share" : "",
               "; destroy communicators or raise net.staging_bytes");
}

}  // namespace arcomm

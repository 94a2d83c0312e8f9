// What there is of each GPU for all users together, and whose it is: no user gets all of a GPU's
// (daemon/memory/fair_share.h). A share is an object: what it holds is free again with its
// destruction. It must not outlive its GpuShares. Thread: the control loop.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/memory/fair_share.h"
#include "proto/status.h"

namespace arcomm {

class Metrics;

enum class GpuResource : std::uint8_t {
  Communicators,  // places in its resident grid: one for each rank that is not alone
  Ranks,          // places for their completions: one for each rank
  Bytes,          // of its memory, where the daemon allocated it
  InStream,       // ranks that have a part of its SMs for in-stream operations, or are to get one
};
inline constexpr std::size_t kGpuResources = 4;
std::string_view text_of(GpuResource resource);  // "communicators"

class GpuShares {
 public:
  class Share {
   public:
    Share(GpuShares& owner, FairShare& of, GpuResource what, uid_t uid, std::uint64_t amount);
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

   private:
    GpuShares& owner_;
    FairShare& of_;
    GpuResource what_;
    uid_t uid_;
    std::uint64_t amount_;
  };
  using SharePtr = std::shared_ptr<Share>;
  using OfGpu = std::array<FairShare, kGpuResources>;  // by GpuResource

  // memory: bytes of each GPU, by its name; 0: not known, and no limit.
  GpuShares(Metrics& metrics, const std::map<std::string, std::uint64_t>& memory);

  // ResourceExhausted/Quota, or OutOfMemory, naming the GPU, the limit and whose share is used up.
  Result<SharePtr> take(uid_t uid, const std::string& gpu, GpuResource what,
                        std::uint64_t amount = 1);
  // What is taken already, whatever the limits say.
  SharePtr note(uid_t uid, const std::string& gpu, GpuResource what, std::uint64_t amount);
  // Whether a user has some of it besides so much, and nobody else has any.
  bool has_all(uid_t uid, const std::string& gpu, GpuResource what, std::uint64_t besides) const;
  // Of each GPU's memory so many bytes are lent at most; 0: all.
  void use_memory_limit(std::uint64_t bytes);
  const std::map<std::string, OfGpu>& shares() const { return by_gpu_; }
  // Null where nobody has asked for any of it.
  const OfGpu* find(const std::string& gpu) const {
    const auto found = by_gpu_.find(gpu);
    return found == by_gpu_.end() ? nullptr : &found->second;
  }

 private:
  void count(GpuResource what, std::int64_t amount);

  Metrics& metrics_;
  const std::map<std::string, std::uint64_t> memory_;
  std::map<std::string, OfGpu> by_gpu_;  // nothing is removed: shares refer to it
};

}  // namespace arcomm

// How much a worker keeps of offers whose operations have not ended, by user: a fair share
// (fair_share.h) of a quarter of net.staging_bytes, so that one tenant with many communicators, or
// its peers, cannot fill the daemon. Nobody's memory is here, only the account of it. Thread: the
// worker's.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "daemon/memory/fair_share.h"
#include "proto/status.h"

namespace arcomm {

class OfferMemory {
 public:
  // Of net.staging_bytes.
  static constexpr std::uint64_t kPart = 4;
  // What is asked for at a time: a communicator keeps one of it, and few ask often.
  static constexpr std::uint64_t kGrain = std::uint64_t{16} << 10;

  explicit OfferMemory(std::uint64_t bytes) { use_bytes(bytes); }
  void use_bytes(std::uint64_t bytes) {
    bytes_ = bytes;
    share_.use_limits({.node = bytes / kGrain, .per_uid = FairShare::kNoLimit, .greed = 1});
  }
  std::uint64_t taken() const { return share_.total() * kGrain; }

  // One communicator's account.
  class Account {
   public:
    Account(OfferMemory& memory, uid_t uid) : memory_(memory), uid_(uid) {}
    ~Account() { memory_.share_.give_back(uid_, grains_); }
    Account(const Account&) = delete;
    Account& operator=(const Account&) = delete;

    // Would hold() of so many bytes be well?
    bool may_hold(std::uint64_t bytes) const {
      const std::uint64_t grains = grains_of(bytes);
      return grains <= grains_ ||
             memory_.share_.ask(uid_, grains - grains_) == FairShare::Answer::Yes;
    }
    // It keeps so many bytes now. ResourceExhausted, naming the bound, where that is more than its
    // user's share: nothing has changed then.
    Status hold(std::uint64_t bytes) {
      const std::uint64_t grains = grains_of(bytes);
      if (grains < grains_) {
        memory_.share_.give_back(uid_, grains_ - grains);
      } else if (grains > grains_) {
        if (!may_hold(bytes)) return memory_.refusal(uid_);
        memory_.share_.take(uid_, grains - grains_);
      }
      grains_ = grains;
      return {};
    }

   private:
    static std::uint64_t grains_of(std::uint64_t bytes) {
      return bytes == 0 ? 1 : (bytes + kGrain - 1) / kGrain;
    }
    OfferMemory& memory_;
    const uid_t uid_;
    std::uint64_t grains_ = 0;
  };

 private:
  // Short: clients hear it, too.
  Error refusal(uid_t uid) const {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "uid ", uid, " has ",
                 share_.of_uid(uid) * kGrain, " bytes of offers under way, all have ", taken(),
                 " of ", bytes_, " (net.staging_bytes / ", kPart, ")");
  }

  std::uint64_t bytes_ = 0;
  FairShare share_;
};

}  // namespace arcomm

// The last epochs of communicators that broke, by unique id: so that a rebuild is the next epoch,
// and nobody else's. Bounded for each uid and for all together, where who has most gives way (uids
// of one range as one: daemon/telemetry/uid_range.h); and for a time. Thread: the control loop's.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <unordered_map>

#include "daemon/exec/specs.h"

namespace arcomm {

class RememberedEpochs {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMostOfUser = 256;
  static constexpr std::size_t kMost = 4096;
  // Ranks that rebuild do so within their deadlines, a day at the most; most within seconds.
  static constexpr std::chrono::hours kLifetime{24};

  struct Epoch {
    uid_t uid = 0;
    std::uint64_t number = 0;
  };
  void remember(const UniqueIdBytes& unique_id, Epoch epoch, Clock::time_point now);
  std::optional<Epoch> find(const UniqueIdBytes& unique_id, Clock::time_point now) const;
  void forget(const UniqueIdBytes& unique_id);
  std::size_t size() const { return by_age_.size(); }
  std::size_t users() const { return of_user_.size(); }

 private:
  struct Entry {
    UniqueIdBytes unique_id;
    Epoch epoch;
    Clock::time_point since;
  };
  using Entries = std::list<Entry>;

  void forget(Entries::iterator entry);
  void forget_oldest_of(uid_t user);
  uid_t who_has_most() const;

  Entries by_age_;  // the oldest first
  std::map<UniqueIdBytes, Entries::iterator> by_id_;
  std::unordered_map<uid_t, std::size_t> of_user_;  // by first_of_range(); none is 0
};

}  // namespace arcomm

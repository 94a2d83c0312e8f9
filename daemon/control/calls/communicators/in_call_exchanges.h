// The memory in which ranks' calls meet (proto/host/in_call.h), of communicators whose ranks are
// all on this host: made when the first rank of an epoch is answered, the same for the others, gone
// with the last. Thread: the control loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/comm/unique_id.h"
#include "daemon/control/limits/client_groups.h"
#include "daemon/control/limits/quota.h"
#include "daemon/plan/tuning/in_call_tuning.h"
#include "daemon/telemetry/metrics/in_call_counts.h"
#include "proto/gpu/launch_table.h"
#include "proto/shared_mapping.h"
#include "proto/status.h"
#include "proto/unique_fd.h"
#include "transport/device/memory_groups.h"

namespace arcomm {

// Of one communicator in one epoch. Its ranks share it.
class InCallExchange {
 public:
  struct Wanted {
    uid_t uid = 0;
    // Of the process of the rank that is answered first, which is rank 0: a user who has another
    // process where more is allowed could have made this memory there.
    const std::optional<std::vector<MemoryGroup>>& groups;  // none: not looked at
    std::uint32_t ranks = 0;
    InCallBounds bounds = {};
    bool is_off = false;       // host.in_call_bytes is 0
    bool same_tables = false;  // every rank's library reads this daemon's launch tables
  };
  struct Books {
    QuotaBook& quotas;
    ClientGroups& groups;
    InCallCounts& counts;
  };
  InCallExchange(const Wanted& wanted, const Books& books);
  ~InCallExchange();
  InCallExchange(const InCallExchange&) = delete;
  InCallExchange& operator=(const InCallExchange&) = delete;

  // The same for all ranks.
  const LaunchTable& launches() const { return launches_; }
  bool has_memory() const { return static_cast<bool>(control_); }
  std::uint32_t ranks() const { return layout_.ranks(); }
  std::uint64_t bytes() const { return has_memory() ? layout_.bytes() : 0; }
  // One for each rank; of the last one nothing is kept.
  Result<UniqueFd> descriptor();
  const std::string& why_not() const { return why_not_; }  // nothing meets in calls; "": it does
  // That its ranks have run in their calls, as they say.
  InCallCounts::Sum counted() const;
  std::uint64_t operations_of(std::uint32_t rank) const;

 private:
  Status make(const Wanted& wanted, const Books& books);
  const InCallControl& control() const {
    return *reinterpret_cast<const InCallControl*>(control_.data());
  }

  InCallCounts& counts_;
  LaunchTable launches_;  // as if there were memory, until that is known
  const InCallLayout layout_;
  ChargePtr reserved_, mapping_;
  GroupChargePtr of_group_;
  UniqueFd memory_;  // as long as a rank has no descriptor of it
  std::uint32_t handed_out_ = 0;
  SharedMapping control_;  // its first pages
  std::string why_not_;
};

class InCallExchanges {
 public:
  explicit InCallExchanges(const InCallExchange::Books& books) : books_(books) {}

  std::shared_ptr<InCallExchange> of(const UniqueIdBytes& unique_id, std::uint64_t epoch,
                                     const InCallExchange::Wanted& wanted);
  // Null: it has none, or none any more.
  std::shared_ptr<const InCallExchange> find(const UniqueIdBytes& unique_id,
                                             std::uint64_t epoch) const;
  // Of those that have memory.
  using Visit =
      std::function<void(const UniqueIdBytes&, std::uint64_t epoch, const InCallExchange&)>;
  void for_each(const Visit& visit) const;

 private:
  using Key = std::pair<UniqueIdBytes, std::uint64_t>;
  const InCallExchange::Books books_;
  std::map<Key, std::weak_ptr<InCallExchange>> exchanges_;  // swept now and then
  static constexpr std::size_t kLeastSwept = 64;
  std::size_t sweep_at_ = kLeastSwept;
};

}  // namespace arcomm

#include "daemon/control/calls/communicators/in_call_exchanges.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/plan/launch_table_builder.h"
#include "kernels/host/reduce_in_call.h"

namespace arcomm {

InCallExchange::InCallExchange(const Wanted& wanted, const Books& books)
    : counts_(books.counts),
      launches_(make_launch_table_on_host(wanted.ranks, wanted.bounds)),
      layout_(wanted.ranks, launches_.most_in_call_bytes()) {
  if (const Status made = make(wanted, books); !made) {
    why_not_ = made.error().message;
    control_ = {};
    memory_.reset();
    of_group_.reset();
    reserved_.reset();
    mapping_.reset();
    launches_ = make_launch_table_on_host(ranks());
  } else {
    counts_.add(control(), ranks());
  }
}

InCallExchange::~InCallExchange() {
  if (has_memory()) counts_.remove(control());
}

Status InCallExchange::make(const Wanted& wanted, const Books& books) {
  const auto not_here = [](const auto&... parts) {
    return error(ErrorCode::Unavailable, Reason::Unsupported, parts...);
  };
  if (wanted.is_off) return not_here("host.in_call_bytes is 0");
  if (!host::can_reduce_in_call()) return not_here("this machine's processor lacks AVX2");
  if (ranks() == 1) return not_here("it has one rank, which has nobody to meet");
  if (ranks() > kMaxInCallRanks)
    return not_here("it has ", ranks(), " ranks, and the calls of up to ", kMaxInCallRanks,
                    " meet");
  if (!wanted.bounds.any()) return not_here("arctl tune found the worker to be faster");
  if (!wanted.same_tables) return not_here("a rank has a library of another version");
  // As when in_call_bytes was 0 at the call of this rank.
  if (!wanted.groups) return not_here("its process's control groups have not been looked at");
  Result<ChargePtr> reserved =
      books.quotas.charge(wanted.uid, QuotaKind::HostBytes, layout_.bytes());
  if (!reserved) return reserved.error();
  reserved_ = std::move(reserved).value();
  Result<ChargePtr> mapping = books.quotas.charge(wanted.uid, QuotaKind::Mappings);
  if (!mapping) return mapping.error();
  mapping_ = std::move(mapping).value();
  // Every page is there from the beginning, and the kernel has the daemon's group pay for it.
  Result<GroupChargePtr> of_group = books.groups.charge(*wanted.groups, layout_.bytes());
  if (!of_group) return of_group.error();
  of_group_ = std::move(of_group).value();
  Result<UniqueFd> memory = create_in_call_memory(layout_);
  if (!memory) return memory.error();
  memory_ = std::move(memory).value();
  Result<SharedMapping> control = map_in_call_memory(memory_.get(), kInCallControlBytes);
  if (!control) return control.error();
  control_ = std::move(control).value();
  return {};
}

Result<UniqueFd> InCallExchange::descriptor() {
  if (++handed_out_ >= ranks()) return std::exchange(memory_, UniqueFd());
  UniqueFd fd = duplicate(memory_.get());
  if (!fd) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "no descriptor is left: ", std::strerror(errno),
                 "; raise LimitNOFILE= of the service");
  }
  return fd;
}

InCallCounts::Sum InCallExchange::counted() const {
  return has_memory() ? counts_.of(control()) : InCallCounts::Sum{};
}

std::uint64_t InCallExchange::operations_of(std::uint32_t rank) const {
  return has_memory() ? counts_.operations_of(control(), rank) : 0;
}

std::shared_ptr<InCallExchange> InCallExchanges::of(const UniqueIdBytes& unique_id,
                                                    std::uint64_t epoch,
                                                    const InCallExchange::Wanted& wanted) {
  if (exchanges_.size() >= sweep_at_) {
    std::erase_if(exchanges_, [](const auto& one) { return one.second.expired(); });
    sweep_at_ = 2 * exchanges_.size() + kLeastSwept;
  }
  std::weak_ptr<InCallExchange>& place = exchanges_[{unique_id, epoch}];
  std::shared_ptr<InCallExchange> exchange = place.lock();
  if (!exchange) {
    exchange = std::make_shared<InCallExchange>(wanted, books_);
    place = exchange;
  }
  return exchange;
}

std::shared_ptr<const InCallExchange> InCallExchanges::find(const UniqueIdBytes& unique_id,
                                                            std::uint64_t epoch) const {
  const auto found = exchanges_.find({unique_id, epoch});
  return found == exchanges_.end() ? nullptr : found->second.lock();
}

void InCallExchanges::for_each(const Visit& visit) const {
  for (const auto& [key, place] : exchanges_) {
    const std::shared_ptr<const InCallExchange> exchange = place.lock();
    if (exchange && exchange->has_memory()) visit(key.first, key.second, *exchange);
  }
}

}  // namespace arcomm

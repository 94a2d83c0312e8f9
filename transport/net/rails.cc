#include "transport/net/rails.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "transport/net/addresses/subnet.h"

namespace arcomm::net {
namespace {

struct Uses {
  std::vector<std::size_t> here, there;
};

bool are_of_one_network(const Interface& here, const FarInterface& there) {
  return Subnet::around(here.host, here.prefix_bits).contains(there.host);
}

// The best of `count` candidates that are of one family: of one network, else the least used.
template <typename Pairs, typename Near>
std::optional<std::size_t> best_of(std::size_t count, const std::vector<std::size_t>& uses,
                                   Pairs can_pair, Near is_near) {
  std::optional<std::size_t> best;
  const auto rank = [&](std::size_t i) { return std::tuple(!is_near(i), uses[i], i); };
  for (std::size_t i = 0; i < count; ++i) {
    if (can_pair(i) && (!best || rank(i) < rank(*best))) best = i;
  }
  return best;
}

// An interface's speed is divided among its rails. What is not known is taken for the slowest that
// is.
void set_shares(std::vector<Rail>& rails, const Uses& uses, std::span<const Interface> here,
                std::span<const FarInterface> there) {
  double slowest = 0;
  for (Rail& rail : rails) {
    const double near_end = here[rail.here].speed_mbits / static_cast<double>(uses.here[rail.here]);
    const double far_end =
        there[rail.there].speed_mbits / static_cast<double>(uses.there[rail.there]);
    rail.share =
        near_end == 0 || far_end == 0 ? std::max(near_end, far_end) : std::min(near_end, far_end);
    if (rail.share > 0 && (slowest == 0 || rail.share < slowest)) slowest = rail.share;
  }
  double all = 0;
  for (Rail& rail : rails) {
    if (rail.share == 0) rail.share = slowest == 0 ? 1 : slowest;
    all += rail.share;
  }
  for (Rail& rail : rails) rail.share /= all;
}

}  // namespace

std::vector<Rail> pair_rails(std::span<const Interface> here, std::span<const FarInterface> there) {
  std::vector<Rail> rails;
  Uses uses{.here = std::vector<std::size_t>(here.size()),
            .there = std::vector<std::size_t>(there.size())};
  const auto can_pair = [&](std::size_t near_end, std::size_t far_end) {
    const auto family = ip_family(here[near_end].host);
    return family && family == ip_family(there[far_end].host);
  };
  const auto is_near = [&](std::size_t near_end, std::size_t far_end) {
    return are_of_one_network(here[near_end], there[far_end]);
  };
  const auto add = [&](std::size_t near_end, std::size_t far_end) {
    rails.push_back(
        {.number = static_cast<std::uint32_t>(far_end + uses.there[far_end] * there.size()),
         .here = near_end,
         .there = far_end});
    ++uses.here[near_end];
    ++uses.there[far_end];
  };
  if (there.size() >= here.size()) {
    for (std::size_t far_end = 0; far_end < there.size(); ++far_end) {
      const auto near_end = best_of(
          here.size(), uses.here, [&](std::size_t i) { return can_pair(i, far_end); },
          [&](std::size_t i) { return is_near(i, far_end); });
      if (near_end) add(*near_end, far_end);
    }
  } else {
    for (std::size_t near_end = 0; near_end < here.size(); ++near_end) {
      const auto far_end = best_of(
          there.size(), uses.there, [&](std::size_t i) { return can_pair(near_end, i); },
          [&](std::size_t i) { return is_near(near_end, i); });
      if (far_end) add(near_end, *far_end);
    }
  }
  set_shares(rails, uses, here, there);
  return rails;
}

std::vector<std::size_t> deal_streams(std::span<const Rail> rails, std::size_t streams) {
  std::vector<std::size_t> dealt;
  std::vector<double> carried(rails.size());
  for (std::size_t stream = 0; stream < streams; ++stream) {
    const auto worth = [&](std::size_t i) { return rails[i].share / (carried[i] + 1); };
    std::size_t best = 0;
    for (std::size_t i = 1; i < rails.size(); ++i)
      if (worth(i) > worth(best)) best = i;
    ++carried[best];
    dealt.push_back(best);
  }
  return dealt;
}

}  // namespace arcomm::net

#include "daemon/control/access/flood_budget.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/telemetry/uid_range.h"

namespace arcomm {
namespace {

constexpr std::size_t kManyUsers = 1024;
constexpr std::uint64_t kMostPrepaid = 256;
constexpr std::uint64_t kSecondNs = 1'000'000'000;

Error flood(const std::string& whose, std::string_view what, const BucketRate& rate) {
  return error(ErrorCode::ResourceExhausted, Reason::Quota, whose, " brought more than ",
               rate.burst, " ", what, " at once and ", kSecondNs / rate.interval_ns, " a second");
}

}  // namespace

Status FloodBudget::pay(Connection& connection, uid_t uid, const FrameCounts& came,
                        std::uint64_t now_ns) {
  connection.prepaid_ = std::min(connection.prepaid_ + came.calls * kOthersWithCall, kMostPrepaid);
  const std::uint64_t paid = std::min(connection.prepaid_, came.others);
  connection.prepaid_ -= paid;
  if (came.resets == 0 && came.others == paid) return {};
  if (users_.size() > kManyUsers) forget_idle(now_ns);
  User& user = users_[first_of_range(uid)];
  const auto take = [uid, now_ns, &user](TokenBucket& own, const BucketRate& of_connection,
                                         TokenBucket& all, const BucketRate& of_user,
                                         std::uint64_t cost, std::string_view what) -> Status {
    if (own.due_ns(of_connection, now_ns, cost) > now_ns)
      return flood("the connection", what, of_connection);
    if (all.due_ns(of_user, now_ns, cost) > now_ns) {
      user.shut_out_until_ns = now_ns + kShutOutNs;
      return flood("all connections of uid " + std::to_string(uid) + " and its range", what,
                   of_user);
    }
    own.take(of_connection, now_ns, cost);
    all.take(of_user, now_ns, cost);
    return {};
  };
  ARC_RETURN_IF_ERROR(take(connection.resets_, kOfConnection.resets, user.resets, kOfUser.resets,
                           came.resets, "calls that were reset"));
  return take(connection.others_, kOfConnection.others, user.others, kOfUser.others,
              came.others - paid, "frames that belong to no call");
}

Status FloodBudget::keep_open(Connection& connection, uid_t uid, std::size_t open) {
  if (open == connection.open_) return {};
  User& user = users_[first_of_range(uid)];
  user.open += open - connection.open_;  // the sum stays right where the difference wraps
  const bool has_more = open > connection.open_;
  connection.open_ = open;
  if (!has_more) return {};
  if (open > kOpenOfConnection) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "the connection has more than ",
                 kOpenOfConnection, " calls that have not ended");
  }
  if (user.open > kOpenOfUser) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "all connections of uid ", uid,
                 " and its range have more than ", kOpenOfUser, " calls that have not ended");
  }
  return {};
}

void FloodBudget::end(Connection& connection, uid_t uid, std::uint64_t now_ns) {
  const std::size_t open = std::exchange(connection.open_, 0);
  if (open == 0) return;
  User& user = users_[first_of_range(uid)];
  user.open -= open;
  if (user.resets.due_ns(kOfUser.resets, now_ns, open) > now_ns) {
    user.shut_out_until_ns = now_ns + kShutOutNs;
  } else {
    user.resets.take(kOfUser.resets, now_ns, open);
  }
}

bool FloodBudget::shuts_out(uid_t uid, std::uint64_t now_ns) const {
  const auto user = users_.find(first_of_range(uid));
  return user != users_.end() && now_ns < user->second.shut_out_until_ns;
}

void FloodBudget::forget_idle(std::uint64_t now_ns) {
  std::erase_if(users_, [now_ns](const auto& user) {
    return user.second.resets.is_full(now_ns) && user.second.others.is_full(now_ns) &&
           user.second.shut_out_until_ns <= now_ns && user.second.open == 0;
  });
}

}  // namespace arcomm

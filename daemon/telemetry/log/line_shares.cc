#include "daemon/telemetry/log/line_shares.h"

#include <utility>

#include "daemon/telemetry/uid_range.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kWindowNs = 1'000'000'000;

}  // namespace

bool LineShares::may_have_another(const Used& used) const {
  if (used.lines >= limits_.of_uid || lines_ >= limits_.of_all) return false;
  return lines_ < limits_.of_all / 2 || used.lines == 0;
}

void LineShares::turn(std::uint64_t now_ns) {
  if (now_ns - second_began_ns_ < kWindowNs) return;
  second_began_ns_ = now_ns;
  lines_ = 0;
  for (const auto& [uid, used] : std::exchange(used_, {})) {
    if (used.left_out == 0) continue;
    const bool is_named = untold_.contains(uid) || untold_.size() < kMostTold;
    (is_named ? untold_[uid] : others_left_out_) += used.left_out;
  }
}

void LineShares::start_anew() {
  const std::lock_guard lock(mutex_);
  second_began_ns_ = lines_ = others_left_out_ = 0;
  used_.clear();
  untold_.clear();
}

bool LineShares::spend(uid_t asking, std::uint64_t now_ns) {
  const uid_t uid = first_of_range(asking);
  const std::lock_guard lock(mutex_);
  turn(now_ns);
  if (used_.size() >= kMostUids && !used_.contains(uid)) {
    ++others_left_out_;
    ++left_out_;
    return false;
  }
  Used& used = used_[uid];
  if (may_have_another(used)) {
    ++used.lines;
    ++lines_;
    return true;
  }
  ++used.left_out;
  ++left_out_;
  return false;
}

std::vector<LineShares::LeftOut> LineShares::take_left_out(std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  turn(now_ns);
  std::vector<LeftOut> all;
  for (const auto& [uid, lines] : std::exchange(untold_, {})) all.push_back({uid, lines});
  if (const std::uint64_t others = std::exchange(others_left_out_, 0); others != 0)
    all.push_back({kOthers, others});
  return all;
}

LineShares::Use LineShares::find_use(std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  turn(now_ns);
  Use use{.limits = limits_, .lines = lines_, .users = used_.size(), .most = {}};
  for (const auto& [uid, used] : used_) {
    if (used.lines > use.most.lines) use.most = {uid, used.lines};
  }
  return use;
}

std::uint64_t LineShares::left_out() const {
  const std::lock_guard lock(mutex_);
  return left_out_;
}

}  // namespace arcomm

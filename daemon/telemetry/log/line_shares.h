// Who may put how many lines into the log: so many a second for each uid and for all together. Half
// of the latter is kept for those who have had none in that second, so that the flood of one, or of
// many, does not hide that something happened to another; what is left out is counted by uid, and
// told once its second is over. Uids of one range (daemon/telemetry/uid_range.h) count as one.
// Thread: any. Times are nanoseconds of a clock that does not go back.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace arcomm {

class LineShares {
 public:
  struct Limits {
    std::uint64_t of_uid = 16;  // lines a second
    std::uint64_t of_all = 512;
  };
  // Of uids that asked within one second, and of those that wait to be told: the others are taken
  // together, under kOthers.
  static constexpr std::size_t kMostUids = 4096, kMostTold = 64;
  static constexpr uid_t kOthers = static_cast<uid_t>(-1);  // nobody's uid

  explicit LineShares(Limits limits) : limits_(limits) {}

  // As if nobody had asked; what was left out before is not told any more.
  void start_anew();
  // For one line about the uid. False: it is left out, and counted.
  bool spend(uid_t asking, std::uint64_t now_ns);

  struct LeftOut {
    uid_t uid = kOthers;  // the first of its range
    std::uint64_t lines = 0;
  };
  // Of the seconds that are over; each is handed out once.
  std::vector<LeftOut> take_left_out(std::uint64_t now_ns);
  std::uint64_t left_out() const;  // in all

  struct Use {
    Limits limits;
    std::uint64_t lines = 0;  // of this second
    std::size_t users = 0;
    LeftOut most;  // the uid that has most of them, and how many
  };
  Use find_use(std::uint64_t now_ns);

 private:
  struct Used {
    std::uint64_t lines = 0, left_out = 0;
  };
  bool may_have_another(const Used& used) const;
  void turn(std::uint64_t now_ns);  // the second, when it is over

  const Limits limits_;
  mutable std::mutex mutex_;  // guards what follows
  std::uint64_t second_began_ns_ = 0;
  std::uint64_t lines_ = 0;               // of this second
  std::unordered_map<uid_t, Used> used_;  // of this second
  std::uint64_t others_left_out_ = 0;
  std::unordered_map<uid_t, std::uint64_t> untold_;
  std::uint64_t left_out_ = 0;
};

}  // namespace arcomm

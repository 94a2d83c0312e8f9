// Requests for which the GPUs must be quiesced: memory, joins, plans that go. Each quiescing stops
// the resident grids of all tenants and takes back what was launched speculatively for them. So
// there are only so many for each user and for all, what is due goes into one quiescing, user by
// user in turn, and who asks for more waits. What finds the GPUs held up, by a kernel of somebody's
// that fills one, say, waits here too, and is tried again until its deadline. Thread: the worker's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "daemon/exec/token_bucket.h"
#include "proto/status.h"

namespace arcomm {

class QuiesceQueue {
 public:
  // A server that starts registers some hundred buffers; then it is quiet.
  static constexpr BucketRate kOfUser{.interval_ns = 5'000'000, .burst = 256};
  // Of a range of uids (daemon/telemetry/uid_range.h), which may be one person's or a directory's:
  // as much as so many users, and one turn. Whoever has had a few lately does not wait for it.
  static constexpr std::uint64_t kUsersOfRange = 8, kFew = 16;
  static constexpr BucketRate kOfRange{.interval_ns = kOfUser.interval_ns / kUsersOfRange,
                                       .burst = kOfUser.burst * kUsersOfRange};
  static constexpr BucketRate kOfAll{.interval_ns = 2'000'000, .burst = 64};
  static constexpr std::size_t kMostAtOnce = 8;  // each takes milliseconds at worst
  static constexpr std::uint64_t kLongestWaitNs = 2'000'000'000;
  static constexpr std::size_t kMostWaiting = 65'536;  // of all users
  static constexpr std::size_t kMostOfUser = 1'024;
  // Where the GPUs could not be quiesced a try takes a millisecond; one that takes longer comes so
  // much later that others have four times as long.
  static constexpr std::uint64_t kHeldUpNs = 20'000'000, kForOthers = 4;
  // Whatever deadline a request names: whoever asked on the caller's behalf waits 10 s
  // (kWorkerLimit), and is to hear what held it up.
  static constexpr std::uint64_t kLongestHeldNs = 9'500'000'000;

  // What became of a try.
  struct Try {
    enum class State : std::uint8_t {
      Answered,
      GoesOn,  // it has done a part, and does the next in another turn, after `pause_ns`
      HeldUp   // nothing was done: `why`
    };
    State state = State::Answered;
    Error why = {};
    std::uint64_t took_ns = 0;
    std::uint64_t pause_ns = 0;
  };
  struct Request {
    std::vector<uid_t> uids;  // who asks: all of them pay, the first one's turn it is
    std::uint64_t cost = 1;   // quiescings, those included that undoing it will take
    std::function<Try()> act;
    std::function<void(Error)> refuse;  // instead, or after tries; let go of right behind it
    std::uint64_t deadline_ns = 0;      // refused then, or kLongestHeldNs after it came
    std::optional<Error> held_up = {};  // by what, the last time
    std::uint64_t number = 0;           // the queue's: in which order they came
  };

  // Refuses it at once (ResourceExhausted) where it would have to wait for longer than
  // kLongestWaitNs.
  void add(Request request, std::uint64_t now_ns);
  // Those to be run now, in one quiescing; each user's in the order in which they came. Refuses
  // those whose deadline has passed.
  std::vector<Request> take(std::uint64_t now_ns);
  // One that was taken, has been tried, and is not answered: where it was among its user's.
  void put_back(Request request, Try tried, std::uint64_t now_ns);
  // When take() has something to do; ~0: never.
  std::uint64_t next_ns(std::uint64_t now_ns) const;
  void refuse_all(const Error& why);
  bool empty() const { return turns_.empty(); }

 private:
  struct Waiting {
    Request request;
    std::uint64_t due_ns = 0;
  };
  struct User {
    TokenBucket bucket;
    std::deque<Waiting> waiting;
  };
  struct Range {
    TokenBucket bucket;
    std::deque<uid_t> turns;  // of its users who wait for something
  };
  bool is_beyond_few(const User& user, std::uint64_t now_ns) const;
  std::optional<uid_t> next_due(Range& range, std::uint64_t now_ns, std::uint64_t& earliest_ns);
  // Behind the others, or before them; of a range, and of a user in it.
  void line_up(uid_t whose, bool first);
  void expire(std::uint64_t now_ns);
  void forget_idle(std::uint64_t now_ns);

  TokenBucket all_;
  std::unordered_map<uid_t, User> users_;
  std::unordered_map<uid_t, Range> ranges_;  // by first_of_range()
  std::deque<uid_t> turns_;                  // of ranges of which somebody waits
  std::size_t size_ = 0;
  std::uint64_t last_number_ = 0;
  std::uint64_t earliest_ns_ = ~std::uint64_t{0};        // nothing is due before
  std::uint64_t first_deadline_ns_ = ~std::uint64_t{0};  // nor expires before
  std::optional<Error> held_up_;                         // by what, the last time, whoever was
};

}  // namespace arcomm

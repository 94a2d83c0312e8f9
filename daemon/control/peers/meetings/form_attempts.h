// Communicators whose ranks have all called at this root, while they come into being: each node
// forms its part (Form), and either all hear that it holds (Commit) or all that it does not
// (Abandon). Nothing of an attempt outlives it: whoever is to wait on announces itself anew.
//
// Thread: the control loop. Knows no socket: messages go through PeerMessenger, time comes from
// `now`, and tick() is due at next_tick().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/peers/meetings/held_ranks.h"
#include "daemon/control/peers/meetings/meeting_messages.h"
#include "daemon/control/peers/peer_messenger.h"

namespace arcomm {

class FormAttempts {
 public:
  using Clock = MeetingClock;
  struct Parts {
    PeerMessenger& peers;
    std::function<NetworkPolicy()> policy;
    std::function<std::uint64_t()> random;  // never 0
    std::function<Clock::time_point()> now;
    // next_tick() is no later than this from now on.
    std::function<void(Clock::time_point)> arm;
    // All nodes have formed it, and are about to hear so.
    std::function<void(const UniqueIdBytes&, const HeldRanks::Held&)> holds;
  };
  explicit FormAttempts(Parts parts) : parts_(std::move(parts)) {}

  struct Plan {
    UniqueIdBytes unique_id{};
    std::uint64_t epoch = 0, segment_limit_bytes = 0;
    std::string no_gpu_codecs_on = {};          // the first that allows none; "": all allow them
    std::uint32_t coding_rules = kCodingRules;  // likewise
    Clock::time_point deadline = Clock::time_point::max();  // of the callers
    std::map<Rank, std::string> devices = {};
    std::vector<HeldRanks::Member> members = {};  // in the order of their lowest ranks
  };
  void begin(const Plan& plan);
  // Calls of one of its members have failed.
  void fail(const UniqueIdBytes& unique_id, PeerId member, const Error& why);
  void peer_lost(const PeerNode& peer, const Error& why);

  void tick();
  std::optional<Clock::time_point> next_tick() const;
  std::size_t size() const { return attempts_.size(); }

 private:
  // One run of Form and Commit, or Abandon.
  struct Attempt {
    struct Member {
      PeerNode peer;
      std::vector<Rank> ranks;
      bool has_answered = false;               // Form
      bool is_sent = false;                    // Commit or Abandon
      bool is_told = false;                    // it has been answered
      std::optional<Clock::time_point> again;  // when to send Commit once more
    };
    UniqueIdBytes unique_id{};
    std::uint64_t epoch = 0;
    Clock::time_point deadline;
    std::vector<Member> members;
    bool is_failed = false;
    std::optional<Error> why;  // failed: none where the calls are to wait on
  };

  void answered(std::uint64_t communicator, std::size_t member, const Result<v1::FormReply>& reply);
  static void give_up(Attempt& attempt, std::optional<Error> why);
  void settle(std::uint64_t communicator);  // tells whom there is something to tell
  void commit(std::uint64_t communicator, std::size_t member);
  void abandon(std::uint64_t communicator, std::size_t member);
  void told(std::uint64_t communicator, std::size_t member);

  Parts parts_;
  std::map<std::uint64_t, Attempt> attempts_;  // by the communicator's number
};

}  // namespace arcomm

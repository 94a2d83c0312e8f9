// Partial sums go round from neighbour to neighbour, by plan/network/ring_schedule.h, and results
// go on from where they are finished, straight from and into receive memory, to one side or to
// both. Thread: the worker's.
//
// A sum that came is added to as soon as a room is free for it, whether or not it can be sent on:
// a piece has no more chunks than there are rooms, so that some node can always go on. In place, a
// result comes when its owner has this node's elements in it, so they are not needed any more. With
// a codec results lie as blocks at the place of their elements until they have been sent on, and
// are decoded then.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "daemon/exec/net/operations/network_operation.h"
#include "daemon/exec/net/operations/result_region.h"
#include "daemon/exec/net/operations/ring_cursor.h"
#include "daemon/exec/net/operations/seat_reduction.h"
#include "daemon/plan/network/host_window.h"

namespace arcomm {

class RingOperation final : public NetworkOperation {
 public:
  explicit RingOperation(NodeGroup& group) : group_(group) {}

  Status begin(const NetworkRequest& request) override;
  bool advance() override;
  bool is_done() const override;
  bool let_go() override;
  net::Regions::Damage damage() const override { return region_.damage(); }

 private:
  // Rooms of sums that wait to be sent on; the others are for this node's own.
  static constexpr std::uint64_t kSumRooms = kRingRooms;

  // Chunks of one kind that were put to one side, in their order.
  struct Puts {
    std::uint64_t count = 0;
    std::array<std::uint64_t, Loans::kAhead> place{};  // of the last ones, among all that were put
  };
  // Results on their way to one side.
  struct Forward {
    std::uint32_t to = 0;
    RingCursor cursor;
    std::uint64_t put = 0;  // chunks: of this node's shard, and of others'
    Puts own = {}, passed_on = {};
    bool is_used = false;
  };

  bool send_sums(bool& has_computed);
  bool send_own(const ElementRange& range, bool& has_computed);
  bool take_sum();
  bool forward(Forward& way);
  std::span<const std::byte> payload_of(const Forward& way, const ElementRange& range) const;
  // Whether a chunk of its kind has left and its memory is this node's again.
  bool has_left(const Forward& way, const Puts& puts, std::uint64_t chunk) const;
  bool result_room_is_free() const;
  void finish(const ElementRange& range, const std::byte* sum);
  // Results that came, on to all seats; `way` sends them on.
  struct Placing {
    RingCursor cursor;
    std::uint64_t sent_on = 0;  // chunks of those that go on
  };
  bool place(Placing& came, const Forward& way, bool& has_computed);
  // Of the chunk that the cursor is at, among all of the result.
  std::uint32_t number_of(const RingCursor& cursor) const;

  NodeGroup& group_;
  SeatReduction seats_;
  ResultRegion region_;
  std::uint64_t seq_ = 0;
  std::optional<RingSchedule> schedule_;
  std::optional<RingRounds> rounds_;
  std::uint64_t most_chunks_ = 1;  // of a piece

  RingCursor sums_out_, sums_in_;
  Placing from_left_, from_right_;
  Forward right_, left_;
  std::uint64_t own_sent_ = 0;             // chunks of the first steps
  std::uint64_t joined_ = 0, passed_ = 0;  // sums in rooms, and sent on from there
  std::array<std::size_t, kSumRooms> joined_bytes_{};
  std::uint64_t finished_ = 0;  // chunks of this node's shard
};

}  // namespace arcomm

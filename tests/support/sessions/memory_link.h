// Two wires (daemon/proxy/wire.h) that face each other in memory. A chunk is first taken out of its
// sender's slot, as a socket would, and then delivered into the room of the same lane; when, is the
// test's to say, or, where it is eager, progress() does all that can be done. Counts what a proxy
// or kernel did wrong: bytes that changed while they were being sent, steps that came out of turn.
// Threads: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "daemon/proxy/wire.h"

namespace arcomm::proxy {

class MemoryLink {
 public:
  struct Options {
    bool is_eager = false;
    std::size_t most_sent = 4;  // chunks of a lane that an end takes before it says Again
    // False: bytes are moved once, from slot to room, and nobody's mistakes are looked for. For
    // figures.
    bool is_checked = true;
    // True: say Again although there is something. Null: never.
    std::function<bool()> hesitates;
  };

  explicit MemoryLink(Options options);
  ~MemoryLink();

  Wire& end(int which);
  // One chunk moves on by one stage, chosen by `random`; false: none can.
  bool move_one(const std::function<std::uint64_t()>& random);
  // Both ends fail from now on, and touch nobody's memory.
  void cut();
  // The next chunk that is delivered lacks its last byte.
  void shorten_next();

  std::vector<std::string> violations() const;

 private:
  class End;
  struct Sent {
    Wire::Transfer transfer = 0;
    std::uint64_t step = 0;
    std::span<const std::byte> bytes;
    std::uint64_t checksum = 0;
    std::vector<std::byte> taken;
    bool is_taken = false;
  };
  struct Room {
    Wire::Transfer transfer = 0;
    std::uint64_t step = 0;
    std::span<std::byte> bytes;
  };
  struct Lane {
    std::deque<Sent> sent;
    std::deque<Room> rooms;
    std::uint64_t next_sent = 0, next_room = 0;
    bool is_ended = false;  // something was cancelled
  };

  bool take(Lane& from, End& sender);
  bool deliver(Lane& from, End& sender, Lane& to, End& receiver);
  bool move_all();
  void violated(std::string what) { violations_.push_back(std::move(what)); }

  Options options_;
  mutable std::mutex mutex_;
  std::array<std::unique_ptr<End>, 2> ends_;
  bool is_cut_ = false, shortens_ = false;
  Wire::Transfer next_transfer_ = 1;
  std::vector<std::string> violations_;
};

}  // namespace arcomm::proxy

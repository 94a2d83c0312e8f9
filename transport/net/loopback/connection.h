// A connection over a LoopbackNetwork. See transport/net/connection.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "transport/net/connection.h"
#include "transport/net/landing.h"
#include "transport/net/loopback/network.h"
#include "transport/net/regions.h"

namespace arcomm::net {

class LoopbackConnection final : public Connection {
 public:
  static constexpr std::size_t kMostFrames = 64;
  // What is on its way at once, as a socket's buffer would bound it.
  static constexpr std::size_t kMostInFlight = std::size_t{512} << 10;

  using Directions = std::shared_ptr<LoopbackNetwork::Direction>;
  struct Options {
    Directions out, in;
    std::string name;
    Secret answer{};  // expected, or shown where the peer is welcome here
    bool is_welcomed = false;
    LoopbackNetwork::Time greeted_by;
    LoopbackNetwork::Duration peer_timeout{};
  };

  LoopbackConnection(LoopbackNetwork& network, std::shared_ptr<Regions> regions, Options options);
  // A connection that failed before it began.
  LoopbackConnection(LoopbackNetwork& network, std::shared_ptr<Regions> regions, std::string name,
                     Error error);
  ~LoopbackConnection() override;

  static const Capabilities& capabilities_of_all();
  const Capabilities& capabilities() const override { return capabilities_of_all(); }
  const std::string& name() const override { return options_.name; }
  Progress is_open() const override;
  Progress post(const Frame& frame, Transfer& transfer) override;
  Progress test(Transfer transfer) const override;
  Progress flush() const override { return test(posted_); }
  bool send_without_copies(bool) override { return false; }
  Progress progress(Receiver& receiver) override;
  void close(std::string_view why) override;
  void abandon(Receiver& receiver) override { landing_.abandon(receiver); }
  const Error& error() const override { return error_; }
  LinkStatistics statistics() const override {
    return state_ == State::Failed ? LinkStatistics() : statistics_;
  }
  int descriptor() const override { return -1; }
  bool wants_to_send() const override { return !waiting_.empty(); }
  bool wants_to_receive() const override { return true; }

 private:
  enum class State : std::uint8_t { Greeting, Open, Closing, Failed };

  bool send_step();
  bool receive_step(Receiver& receiver);
  // The frame that has arrived; false: the receiver has no room.
  Result<bool> take(const LoopbackNetwork::Direction::Flight& flight, Receiver& receiver);
  void look_for_loss();
  void fail(Error error);
  void fail_for(Error fault, Receiver& receiver);  // of the peer, who is told

  LoopbackNetwork& network_;
  Options options_;
  State state_ = State::Greeting;
  const std::shared_ptr<Regions> regions_;
  Landing landing_;
  std::deque<Frame> waiting_;
  // The n-th that was posted has number n: 0 is the hello or welcome.
  std::uint64_t posted_ = 0, completed_ = 0;
  std::uint64_t next_number_ = 0;  // of the frame that comes next
  LinkStatistics statistics_;
  std::string goodbye_;
  Error error_;
};

}  // namespace arcomm::net

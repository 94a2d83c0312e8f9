// One client's connection on its way to the gRPC server: its bytes are read here and written into a
// socket pair, whose other end gRPC serves, and back. So gRPC never reads from a stranger's socket:
// descriptors that a stranger put into it would be closed by whoever reads them, and a close may
// block for as long as their sender likes. They are not read here either: what waits is looked at
// first, and where a descriptor is among it the connection ends with all of it unread.
//
// gRPC hears of a connection once its preface has come. Each direction holds one piece of bytes at
// most that the other side has not taken; until it is gone nothing more is read for that side. A
// side that does not say what it owes, or does not read what it is owed, is given a deadline; one
// that sends more frames that are no calls than it may (flood_budget.h) is told to go away.
//
// Thread: the control loop. Ownership: both sockets, which the owner takes out before the
// destruction, since closing a stranger's may block.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "daemon/control/access/flood_budget.h"
#include "daemon/control/access/frame_reader.h"
#include "daemon/control/rpc/event_loop.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

class RelayedConnection {
 public:
  static constexpr std::size_t kPieceBytes = 16'384;  // read at once, and kept at most

  struct Deadlines {
    std::chrono::milliseconds greeting{5'000};  // from the connect to the end of the first frame
    std::chrono::milliseconds frame{10'000};    // from the first byte of a frame to its last
    std::chrono::milliseconds reading{10'000};  // until a client takes a byte of what it was sent
  };
  struct Parts {
    EventLoop& loop;
    Deadlines deadlines;
    FloodBudget& budget;  // outlives it
    uid_t uid;            // who pays
    // Our end of a socket pair whose other end gRPC has; called once.
    std::function<Result<UniqueFd>()> open_server;
    // Cancelled: one of the two hung up; Reason::Quota: a flood. Otherwise the client did what no
    // client of ours does. The last that it does: the connection may be destroyed by it.
    std::function<void(const Error& why)> ended;
  };

  RelayedConnection(Parts parts, UniqueFd client);
  ~RelayedConnection();
  RelayedConnection(const RelayedConnection&) = delete;
  RelayedConnection& operator=(const RelayedConnection&) = delete;

  Status begin();
  // What gRPC has still written leaves as far as the client's socket takes it.
  void flush();
  // Watched no more, and shut down: the other ends hear of it before the close.
  std::pair<UniqueFd, UniqueFd> take_sockets();  // the client's, ours of the pair

 private:
  // Bytes under way in one direction.
  struct Flow {
    std::vector<std::byte> left;  // what the far side has not taken, from `at` on
    std::size_t at = 0;
    std::uint64_t taken = 0;  // bytes ever

    bool is_blocked() const { return at < left.size(); }
    // False of both: the far side is gone.
    bool push(int to, std::span<const std::byte> bytes);
    bool flush(int to);
  };
  enum class Owed : std::uint8_t { Nothing, Greeting, Frame, Reading };
  struct Debt {
    Owed what = Owed::Nothing;
    std::uint64_t since = 0;  // which frame, or after how many bytes
    friend bool operator==(const Debt&, const Debt&) = default;
  };

  void on_client(std::uint32_t events);
  void on_server(std::uint32_t events);
  // After each event: ends the connection, or looks to what is watched and waited for.
  void settle(Status status);
  Status read_client();
  Status forward(std::span<const std::byte> bytes);
  // For the frames that have come since the last time.
  Status pay();
  void say_goodbye(const Error& why);
  Status open_server();
  // One piece, or 0 where none waits. Cancelled when gRPC has closed.
  Result<std::size_t> read_server();
  Status send_client(std::uint32_t events);
  void use_interest();
  Debt debt() const;
  void watch_debt();

  Parts parts_;
  UniqueFd client_, server_;
  OpenCalls calls_;
  FrameReader frames_{FrameReader::Side::Client, &calls_},
      server_frames_{FrameReader::Side::Server, &calls_};
  FloodBudget::Connection paid_;
  FrameCounts paid_for_;
  Flow to_server_, to_client_;
  std::uint32_t client_events_ = 0, server_events_ = 0;  // what is watched; 0 of the server: not
  Debt debt_;
  EventLoop::TimerKey deadline_;
};

}  // namespace arcomm

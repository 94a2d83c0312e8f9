// A connection over one TCP socket. See transport/net/connection.h.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "proto/unique_fd.h"
#include "transport/net/connection.h"
#include "transport/net/regions.h"
#include "transport/net/tcp/incoming.h"
#include "transport/net/tcp/outgoing.h"
#include "transport/net/tcp/socket.h"
#include "transport/net/tcp/uncopied_sends.h"

namespace arcomm::net {

class TcpConnection final : public Connection {
 public:
  struct Options {
    std::string name;
    std::shared_ptr<Regions> regions;
    std::chrono::milliseconds greeting_timeout{}, peer_timeout{};
  };
  // The socket is on its way; `key` is shown as soon as it stands, and `answer` has to come within
  // the greeting timeout.
  static ConnectionPtr connecting(UniqueFd socket, Options options, const HelloKey& key,
                                  const Secret& answer);
  // The peer has shown its key, and is told that it is welcome.
  static ConnectionPtr accepted(UniqueFd socket, Options options, const Secret& answer);

  ~TcpConnection() override { end_socket(); }

  static const Capabilities& capabilities_of_all();
  const Capabilities& capabilities() const override { return capabilities_of_all(); }
  const std::string& name() const override { return options_.name; }
  Progress is_open() const override;
  Progress post(const Frame& frame, Transfer& transfer) override;
  Progress test(Transfer transfer) const override;
  Progress flush() const override;
  bool send_without_copies(bool wanted) override;
  Progress progress(Receiver& receiver) override;
  void close(std::string_view why) override;
  void abandon(Receiver& receiver) override;
  const Error& error() const override { return error_; }
  LinkStatistics statistics() const override;
  int descriptor() const override { return socket_.get(); }
  bool wants_to_send() const override;
  bool wants_to_receive() const override { return !incoming_.is_held(); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class State : std::uint8_t {
    Connecting,  // the socket does not stand yet
    Greeting,    // it stands, the welcome is waited for
    Open,
    Closing,   // our goodbye is on its way
    Draining,  // it has left; the peer's end is waited for, so that no reset overtakes it
    Failed,
  };

  TcpConnection(UniqueFd socket, Options options, State state, const HelloKey& key,
                const Secret& answer);
  bool connect_step();
  bool send_step();
  bool receive_step(Receiver& receiver);
  bool drain_step();
  ssize_t send_pieces(std::span<iovec> pieces, std::size_t bytes);
  // True: the kernel has let go of payloads.
  bool release_step();
  // Whatever was not sent is dropped, if the kernel would otherwise go on reading payloads.
  void end_socket();
  // What has to come or to go within a time: looked at when nothing moved.
  void look_at_clock();
  bool is_silent(Clock::time_point now);
  // Always true: it is progress, too.
  bool fail(Error error);
  bool fail_for(Error fault, Receiver& receiver);  // of the peer, who is told as far as it listens
  bool fail_with_errno(std::string_view what, int number);

  UniqueFd socket_;
  const Options options_;
  State state_;
  const Clock::time_point greeted_by_;
  Clock::time_point next_look_{};     // at what was not acknowledged
  Clock::time_point silent_since_{};  // an answer is owed, and none came since
  Clock::time_point frame_since_{};   // since then the rest of a frame has not come; 0: none waits
  Clock::time_point drained_by_;
  const HelloKey key_;
  const Secret answer_;
  Incoming incoming_;
  Outgoing outgoing_;
  bool copies_ = true;
  UncopiedSends uncopied_;
  Error error_;
};

}  // namespace arcomm::net

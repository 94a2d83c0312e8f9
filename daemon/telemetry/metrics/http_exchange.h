// One HTTP/1.0 exchange on a non-blocking socket: a short request in, one answer out, closed.
// Thread: the metrics server's.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "proto/unique_fd.h"

namespace arcomm {

class HttpExchange {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  HttpExchange(UniqueFd socket, TimePoint deadline);

  // Call when poll() says the socket is ready. False: finished or failed; destroy it.
  bool advance(const std::function<std::string()>& render);

  int fd() const { return socket_.get(); }
  short wanted_events() const;  // POLLIN or POLLOUT
  TimePoint deadline() const { return deadline_; }

 private:
  bool receive(const std::function<std::string()>& render);
  bool transmit();

  UniqueFd socket_;
  TimePoint deadline_;
  std::string request_;
  std::string answer_;  // empty: still receiving
  std::size_t sent_ = 0;
};

// The answer to a request's text, headers included.
std::string answer_http(std::string_view request, const std::function<std::string()>& render);

}  // namespace arcomm

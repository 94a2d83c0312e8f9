// Serves one text over HTTP, on a TCP port or a unix socket: what Prometheus scrapes.
// Thread: its own, and only that; the text is made by `render` on it. A client may hold one of 8
// connections for at most 2 s and send at most 4 KiB; a ninth client pushes out the oldest. Nothing
// it does reaches another thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

class MetricsServer {
 public:
  // `listen` as the setting metrics.listen: "127.0.0.1:9464", "[::1]:9464" or "unix:<path>"; not
  // "". A stale socket file is replaced; one that somebody listens on is an error, as is a port in
  // use.
  static Result<std::unique_ptr<MetricsServer>> start(const std::string& listen,
                                                      std::function<std::string()> render);
  ~MetricsServer();  // ends the thread; at once, whatever its clients do
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // Where it listens; the port is the true one when 0 was asked for.
  const std::string& address() const { return address_; }

 private:
  MetricsServer(UniqueFd listener, UniqueFd wake, std::string address, std::string unlink_path,
                std::function<std::string()> render);
  void run();

  UniqueFd listener_;
  UniqueFd wake_;  // eventfd
  std::string address_;
  std::string unlink_path_;  // "" for TCP
  std::function<std::string()> render_;
  std::thread thread_;
};

}  // namespace arcomm

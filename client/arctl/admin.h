// The daemon's admin socket, one method per call of NodeAdmin. Blocking, each call with the timeout
// given at open().
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "proto/arcommd/v1/control.pb.h"
#include "proto/status.h"

namespace arcomm::arctl {

class Admin {
 public:
  // runtime_dir "" means $ARCOMM_RUNTIME_DIR, then /run/arcommd. NotRunning when nobody answers
  // there.
  static Result<Admin> open(const std::string& runtime_dir, std::chrono::milliseconds timeout);
  Admin(Admin&&) noexcept;
  Admin& operator=(Admin&&) noexcept;
  ~Admin();

  Result<::arcommd::v1::StatusReply> status();
  Result<::arcommd::v1::SessionsReply> sessions();
  Result<::arcommd::v1::CommunicatorsReply> communicators();
  Result<::arcommd::v1::MetricsReply> metrics();
  Result<::arcommd::v1::TraceReply> trace(const ::arcommd::v1::TraceRequest& request);
  Result<::arcommd::v1::ReloadReply> reload();
  Result<::arcommd::v1::ExplainReply> explain(const ::arcommd::v1::ExplainRequest& request);
  Result<::arcommd::v1::NetReply> net();
  // Calls `seen` for each reply of the stream; the whole stream gets `budget`.
  Status tune(const ::arcommd::v1::TuneRequest& request, std::chrono::milliseconds budget,
              const std::function<void(const ::arcommd::v1::TuneReply&)>& seen);

 private:
  struct Connection;
  explicit Admin(std::unique_ptr<Connection> connection);

  std::unique_ptr<Connection> connection_;
};

}  // namespace arcomm::arctl

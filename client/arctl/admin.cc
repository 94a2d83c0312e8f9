#include "client/arctl/admin.h"

#include <cstdlib>

#include "client/src/control/control_call.h"
#include "client/src/control/control_channel.h"

namespace arcomm::arctl {

namespace v1 = ::arcommd::v1;

struct Admin::Connection {
  Connection(std::string socket_path, std::chrono::milliseconds limit)
      : channel(std::move(socket_path)), timeout(limit) {}

  template <typename Reply, typename Request>
  Result<Reply> call(std::string_view method, const Request& request) {
    return client::call<Reply>(channel, "NodeAdmin", method, request,
                               client::Deadline::after(timeout));
  }

  client::ControlChannel channel;
  std::chrono::milliseconds timeout;
};

Admin::Admin(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
Admin::Admin(Admin&&) noexcept = default;
Admin& Admin::operator=(Admin&&) noexcept = default;
Admin::~Admin() = default;

Result<Admin> Admin::open(const std::string& runtime_dir, std::chrono::milliseconds timeout) {
  std::string folder = runtime_dir;
  if (folder.empty()) {
    const char* from_environment = std::getenv("ARCOMM_RUNTIME_DIR");
    folder = from_environment != nullptr && *from_environment != '\0' ? from_environment
                                                                      : "/run/arcommd";
  }
  return Admin(std::make_unique<Connection>(folder + "/admin.sock", timeout));
}

Result<v1::StatusReply> Admin::status() {
  return connection_->call<v1::StatusReply>("GetStatus", v1::Empty{});
}
Result<v1::SessionsReply> Admin::sessions() {
  return connection_->call<v1::SessionsReply>("ListSessions", v1::Empty{});
}
Result<v1::CommunicatorsReply> Admin::communicators() {
  return connection_->call<v1::CommunicatorsReply>("ListCommunicators", v1::Empty{});
}
Result<v1::MetricsReply> Admin::metrics() {
  return connection_->call<v1::MetricsReply>("GetMetrics", v1::Empty{});
}
Result<v1::TraceReply> Admin::trace(const v1::TraceRequest& request) {
  return connection_->call<v1::TraceReply>("Trace", request);
}
Result<v1::ReloadReply> Admin::reload() {
  return connection_->call<v1::ReloadReply>("Reload", v1::Empty{});
}
Result<v1::NetReply> Admin::net() {
  return connection_->call<v1::NetReply>("GetNet", v1::Empty{});
}
Result<v1::ExplainReply> Admin::explain(const v1::ExplainRequest& request) {
  return connection_->call<v1::ExplainReply>("Explain", request);
}

Status Admin::tune(const v1::TuneRequest& request, std::chrono::milliseconds budget,
                   const std::function<void(const v1::TuneReply&)>& seen) {
  return client::stream<v1::TuneReply>(connection_->channel, "NodeAdmin", "Tune", request,
                                       client::Deadline::after(budget), seen);
}

}  // namespace arcomm::arctl

#include "daemon/control/peers/peer_client.h"

#include <pthread.h>

#include <algorithm>

#include "daemon/control/peers/peer_limits.h"
#include "daemon/control/rpc/status_map.h"

namespace arcomm {
namespace {

// gRPC's own pauses between attempts to connect: a caller that asks again has pauses of its own.
constexpr int kShortestReconnectMs = 50, kLongestReconnectMs = 500;

grpc::ChannelArguments peer_channel_arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kShortestReconnectMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);  // how long a connect may take
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestReconnectMs);
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Not through a proxy that stands in the environment for something else.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetMaxReceiveMessageSize(kMostPeerMessageBytes);
  return arguments;
}

}  // namespace

PeerClient::PeerClient(EventLoop& loop, PeerTls tls)
    : loop_(loop),
      credentials_(tls.is_on() ? grpc::SslCredentials({tls.authority, std::move(tls.key),
                                                       std::move(tls.certificate)})
                               : grpc::InsecureChannelCredentials()),
      thread_([this] { serve_queue(); }) {}

PeerClient::~PeerClient() {
  queue_.Shutdown();
  thread_.join();
}

void PeerClient::serve_queue() {
  ::pthread_setname_np(::pthread_self(), "arc-peers");
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
    const std::unique_ptr<Tag> finished(static_cast<Tag*>(tag));
    (*finished)();
  }
}

Error PeerClient::error_of(const grpc::Status& status, const grpc::ClientContext& context) {
  if (std::optional<Error> told = from_grpc(status, context)) return *std::move(told);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
    return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "it did not answer in time");
  return error(ErrorCode::Unavailable, Reason::NotRunning, status.error_message());
}

PeerClient::Line::Line(PeerClient& client, std::string address)
    : client_(client),
      address_(std::move(address)),
      stub_(v1::PeerService::NewStub(grpc::CreateCustomChannel(
          "dns:///" + address_, client.credentials_, peer_channel_arguments()))) {}

PeerClient::Line::~Line() {
  for (const std::shared_ptr<Call>& call : *calls_) call->context.TryCancel();
}

void PeerClient::Line::begin(Call& call, Clock::time_point deadline) {
  const auto left = std::max(deadline - Clock::now(), Clock::duration(0));
  call.context.set_deadline(std::chrono::system_clock::now() +
                            std::chrono::duration_cast<std::chrono::system_clock::duration>(left));
}

}  // namespace arcomm

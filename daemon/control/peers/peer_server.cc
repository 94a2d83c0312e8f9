#include "daemon/control/peers/peer_server.h"

#include <grpc/support/log.h>
#include <grpcpp/resource_quota.h>

#include <functional>
#include <utility>

#include "daemon/control/access/frame_reader.h"
#include "daemon/control/peers/peer_limits.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

constexpr int kMostCallsPerPeer = 100;
constexpr int kMostPeerMetadataBytes = 8 * 1024;
constexpr std::size_t kMostPeerBufferBytes = 64 << 20;  // of all connections together

// With TLS, connections are known by where they come from, which no two of them share.
std::optional<Caller> caller_over_tls(const std::string& grpc_peer) {
  return Caller{
      .connection = std::hash<std::string>{}(grpc_peer), .kind = SocketKind::Admin, .peer = {}};
}

std::shared_ptr<grpc::ServerCredentials> credentials_of(const PeerTls& tls) {
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = tls.authority;
  options.pem_key_cert_pairs.push_back({tls.key, tls.certificate});
  return grpc::SslServerCredentials(options);
}

// It has a line for each handshake that fails, as often as strangers like; what matters is in the
// state of a peer.
void keep_grpc_quiet() {
  gpr_set_log_function([](gpr_log_func_args* line) { log::debug("gRPC: {}", line->message); });
}

}  // namespace

Result<std::unique_ptr<PeerServer>> PeerServer::start(Parts parts) {
  std::unique_ptr<PeerServer> self(new PeerServer(std::move(parts)));
  keep_grpc_quiet();
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMostPeerMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCallsPerPeer);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMostPeerMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE,
                             static_cast<int>(FrameReader::kMostFrameBytes));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(kProofLimit.count()));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetResourceQuota(grpc::ResourceQuota("arcommd-peers").Resize(kMostPeerBufferBytes));
  builder.RegisterService(&self->service_);
  int port = 0;
  const bool is_tls = self->parts_.tls.is_on();
  if (is_tls)
    builder.AddListeningPort(self->parts_.listen, credentials_of(self->parts_.tls), &port);
  Result<std::unique_ptr<RpcEngine>> engine =
      RpcEngine::start(builder, self->parts_.loop, self->parts_.metrics,
                       is_tls ? caller_over_tls : self->parts_.find_caller);
  if (!engine || (is_tls && port == 0)) {
    return error(ErrorCode::Unavailable, Reason::BadConfig, "other daemons cannot be listened for",
                 is_tls ? " on " + self->parts_.listen +
                              " (is the port taken? do net.tls_cert and net.tls_key fit?)"
                        : std::string());
  }
  self->engine_ = *std::move(engine);
  self->engine_->floor().counts = false;
  self->listen();
  self->engine_->serve(1, "arc-peer-rpc");
  return self;
}

void PeerServer::adopt(UniqueFd connection) {
  engine_->adopt(std::move(connection));
}

void PeerServer::listen() {
#define ARC_METHOD(Method, In, Out, handler)                                             \
  engine_->add<UnaryCall<v1::In, v1::Out>>(                                              \
      {#Method,                                                                          \
       true,                                                                             \
       [this](auto* context, auto* request, auto* writer, auto* queue, void* tag) {      \
         service_.Request##Method(context, request, writer, queue, queue, tag);          \
       },                                                                                \
       {[this](const Caller& caller, const v1::In& request, auto&& answer) {             \
          parts_.calls.handler(caller, request, std::forward<decltype(answer)>(answer)); \
        },                                                                               \
        {}},                                                                             \
       {}})
  ARC_METHOD(Greet, GreetRequest, GreetReply, greet);
  ARC_METHOD(Prove, ProveRequest, ProveReply, prove);
  ARC_METHOD(Beat, BeatRequest, BeatReply, beat);
  ARC_METHOD(Leave, LeaveRequest, PeerEmpty, leave);
  ARC_METHOD(Connect, ConnectRequest, ConnectReply, connect);
  ARC_METHOD(Announce, AnnounceRequest, AnnounceReply, announce);
  ARC_METHOD(Form, FormRequest, FormReply, form);
  ARC_METHOD(Commit, CommitRequest, PeerEmpty, commit);
  ARC_METHOD(Abandon, AbandonRequest, PeerEmpty, abandon);
#undef ARC_METHOD
}

}  // namespace arcomm

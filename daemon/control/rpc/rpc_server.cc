#include "daemon/control/rpc/rpc_server.h"

#include <grpcpp/resource_quota.h>

#include <utility>

#include "daemon/control/access/frame_reader.h"

namespace arcomm {
namespace {

constexpr int kMostCallsPerConnection =
    80;  // 64 ranks that join at once from one process, and room
constexpr int kMostMetadataBytes = 8 * 1024;
constexpr std::size_t kMostBufferBytes = 64 << 20;  // of all connections together
constexpr int kQueueThreads = 2;

}  // namespace

Result<std::unique_ptr<RpcServer>> RpcServer::start(Parts parts) {
  std::unique_ptr<RpcServer> self(new RpcServer(std::move(parts)));
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMostBytesOfAnyRequest));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCallsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMostMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE,
                             static_cast<int>(FrameReader::kMostFrameBytes));
  // It pings for each message to learn the delay of a network, and enlarges frames by it.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.SetResourceQuota(grpc::ResourceQuota("arcommd").Resize(kMostBufferBytes));
  builder.RegisterService(&self->control_service_);
  builder.RegisterService(&self->admin_service_);
  Result<std::unique_ptr<RpcEngine>> engine =
      RpcEngine::start(builder, self->parts_.loop, self->parts_.metrics, self->parts_.find_caller);
  if (!engine) return std::move(engine).error();
  self->engine_ = *std::move(engine);
  self->use_call_limits(self->parts_.calls);
  self->listen();
  self->engine_->serve(kQueueThreads, "arc-rpc");
  return self;
}

void RpcServer::adopt(UniqueFd connection) {
  engine_->adopt(std::move(connection));
}

void RpcServer::use_call_limits(FairShare::Limits limits) {
  std::lock_guard lock(engine_->floor().mutex);
  engine_->floor().users_calls.use_limits(limits);
  parts_.metrics.node(NodeResource::Calls).limit.set(static_cast<std::int64_t>(limits.node));
}

FairShare RpcServer::calls() const {
  std::lock_guard lock(engine_->floor().mutex);
  return engine_->floor().users_calls;
}

void RpcServer::stop() {
  if (engine_) engine_->stop();
}

template <typename Request, typename Reply, typename Listen>
void RpcServer::add(const char* name, bool admin, Listen listen, Handle<Request, Reply> handle,
                    TakeBack<Request, Reply> take_back,
                    std::function<void(std::uint64_t call)> cancelled) {
  using Call = UnaryCall<Request, Reply>;
  engine_->add<Call>({name,
                      admin,
                      std::move(listen),
                      {std::move(handle), std::move(take_back)},
                      std::move(cancelled)});
}

// One line per method: how gRPC listens for it, and who handles it.
void RpcServer::listen() {
  // Behind `handler`, where there is something to undo: as UnaryHandler and RpcMethod have them.
  const auto take_back = [this](const Caller& caller, const auto& request, const auto& unheard) {
    parts_.control.take_back(caller, request.session(), unheard);
  };
#define ARC_METHOD(service, is_admin, Method, In, Out, handler, ...)               \
  add<v1::In, v1::Out>(                                                            \
      #Method, is_admin,                                                           \
      [this](auto* context, auto* request, auto* writer, auto* queue, void* tag) { \
        service.Request##Method(context, request, writer, queue, queue, tag);      \
      },                                                                           \
      [this](const Caller& caller, const v1::In& request, auto&& answer) {         \
        parts_.handler(caller, request, std::forward<decltype(answer)>(answer));   \
      } __VA_OPT__(, ) __VA_ARGS__)
  ARC_METHOD(control_service_, false, Attach, AttachRequest, AttachReply, control.attach);
  ARC_METHOD(control_service_, false, DestroyCommunicator, DestroyCommunicatorRequest, Empty,
             control.destroy_communicator);
  ARC_METHOD(control_service_, false, AbortCommunicator, AbortCommunicatorRequest, Empty,
             control.abort_communicator);
  ARC_METHOD(control_service_, false, AllocateBuffer, AllocateBufferRequest, BufferReply,
             control.allocate_buffer, take_back,
             [this](std::uint64_t call) { parts_.control.cancel_allocation(call); });
  ARC_METHOD(control_service_, false, RegisterBuffer, RegisterBufferRequest, BufferReply,
             control.register_buffer, take_back);
  ARC_METHOD(control_service_, false, ReleaseBuffer, ReleaseBufferRequest, Empty,
             control.release_buffer);
  ARC_METHOD(control_service_, false, CreatePlan, CreatePlanRequest, CreatePlanReply,
             control.create_plan, take_back);
  ARC_METHOD(control_service_, false, DestroyPlan, DestroyPlanRequest, Empty, control.destroy_plan);
  ARC_METHOD(control_service_, false, TakeBack, TakeBackRequest, Empty, control.take_back);
  ARC_METHOD(control_service_, false, Describe, DescribeRequest, DescribeReply, control.describe);
  ARC_METHOD(control_service_, false, Detach, DetachRequest, Empty, control.detach);
  ARC_METHOD(admin_service_, true, GetStatus, Empty, StatusReply, admin.get_status);
  ARC_METHOD(admin_service_, true, ListSessions, Empty, SessionsReply, admin.list_sessions);
  ARC_METHOD(admin_service_, true, ListCommunicators, Empty, CommunicatorsReply,
             admin.list_communicators);
  ARC_METHOD(admin_service_, true, GetMetrics, Empty, MetricsReply, admin.get_metrics);
  ARC_METHOD(admin_service_, true, Trace, TraceRequest, TraceReply, admin.trace);
  ARC_METHOD(admin_service_, true, Reload, Empty, ReloadReply, admin.reload);
  ARC_METHOD(admin_service_, true, Explain, ExplainRequest, ExplainReply, admin.explain);
  ARC_METHOD(admin_service_, true, GetNet, Empty, NetReply, admin.get_net);
#undef ARC_METHOD
  // The one call that waits for other processes: its caller may lose patience before it is
  // answered.
  add<v1::CreateCommunicatorRequest, v1::CreateCommunicatorReply>(
      "CreateCommunicator", false,
      [this](auto* context, auto* request, auto* writer, auto* queue, void* tag) {
        control_service_.RequestCreateCommunicator(context, request, writer, queue, queue, tag);
      },
      [this](const Caller& caller, const v1::CreateCommunicatorRequest& request,
             Answer<v1::CreateCommunicatorReply> answer) {
        parts_.control.create_communicator(caller, request, std::move(answer));
      },
      take_back, [this](std::uint64_t call) { parts_.control.cancel_communicator(call); });

  using Tune = StreamCall<v1::TuneRequest, v1::TuneReply>;
  engine_->add<Tune>({"Tune",
                      true,
                      [this](auto* context, auto* request, auto* writer, auto* queue, void* tag) {
                        admin_service_.RequestTune(context, request, writer, queue, queue, tag);
                      },
                      [this](const Caller& caller, const v1::TuneRequest& request,
                             RpcStream<v1::TuneReply> stream) {
                        parts_.admin.tune(caller, request, std::move(stream));
                      },
                      {}});
}

}  // namespace arcomm

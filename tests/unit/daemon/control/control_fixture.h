// A control plane over real sockets in a folder of its own, with a fake worker behind it, and the
// client's side of gRPC and of the descriptor socket.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/control/control_plane.h"
#include "daemon/telemetry/flight_recorder.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "proto/arcommd/v1/control.grpc.pb.h"
#include "proto/fd_message.h"
#include "proto/gpu/launch_table.h"
#include "proto/version.h"
#include "tests/unit/daemon/control/fake_worker.h"

namespace arcomm::test {

using std::chrono::milliseconds;

inline bool eventually(const std::function<bool()>& condition,
                       milliseconds limit = milliseconds(3000)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

// Reason number that came with a failed call; -1 without.
inline int reason_of(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find("arcomm-reason");
  return found == metadata.end()
             ? -1
             : std::stoi(std::string(found->second.data(), found->second.size()));
}

struct Outcome {
  grpc::Status status;
  Reason reason = Reason::None;
};

class FakeActions final : public DaemonActions {
 public:
  void describe(v1::StatusReply& status) override { status.set_backend("fake"); }
  Result<v1::ReloadReply> reload() override {
    v1::ReloadReply reply;
    reply.set_config_generation(2);
    return reply;
  }
  Status tune(const v1::TuneRequest&, const std::function<void(v1::TuneReply)>& send,
              const std::function<bool()>& cancelled) override {
    for (int i = 0; i < 100 && !cancelled(); ++i) {
      v1::TuneReply reply;
      reply.set_progress(i / 100.0);
      send(reply);
      if (endless) {
        --i;
        std::this_thread::sleep_for(milliseconds(2));
      }
    }
    v1::TuneReply last;
    last.set_finished(true);
    send(last);
    return {};
  }
  std::string algorithm_name(std::uint8_t) override { return "inline"; }
  const FlightLog& previous_operations() const override { return previous; }
  Result<v1::ExplainReply> explain(const v1::ExplainRequest&) override {
    return v1::ExplainReply();
  }
  FlightLog previous;
  std::atomic<bool> endless{false};
};

// The client's end of fd.sock.
class FdClient {
 public:
  explicit FdClient(const std::string& path)
      : fd_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    connected_ = ::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    const timeval limit{.tv_sec = 8, .tv_usec = 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  bool connected() const { return connected_; }
  int fd() const { return fd_.get(); }
  void hang_up() { fd_.reset(); }

  bool send_bytes(const void* bytes, std::size_t length, const std::vector<int>& fds = {}) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 8)] = {};
    iovec part{.iov_base = const_cast<void*>(bytes), .iov_len = length};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (!fds.empty()) {
      header.msg_control = control;
      header.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
    }
    return ::sendmsg(fd_.get(), &header, MSG_NOSIGNAL) == static_cast<ssize_t>(length);
  }
  // nullopt: the daemon closed the connection.
  std::optional<FdMessage> receive(std::vector<UniqueFd>* fds = nullptr) {
    FdMessage message;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 8)];
    iovec part{.iov_base = &message, .iov_len = sizeof(message)};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    if (::recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof(message)))
      return std::nullopt;
    for (cmsghdr* one = CMSG_FIRSTHDR(&header); one != nullptr; one = CMSG_NXTHDR(&header, one)) {
      for (std::size_t i = 0; i < (one->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(one) + i * sizeof(int), sizeof(int));
        UniqueFd owned(fd);
        if (fds != nullptr) fds->push_back(std::move(owned));
      }
    }
    return message;
  }
  std::optional<FdMessage> ask(const FdMessage& message, const std::vector<int>& send = {},
                               std::vector<UniqueFd>* received = nullptr) {
    if (!send_bytes(&message, sizeof(message), send)) return std::nullopt;
    return receive(received);
  }

 private:
  UniqueFd fd_;
  bool connected_ = false;
};

inline FdMessage fd_request(FdMessageKind kind, std::uint64_t ticket = 0) {
  FdMessage message;
  message.kind = kind;
  message.ticket = ticket;
  return message;
}

class ControlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/arcomm-control-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    settings_.runtime_dir = name;
    settings_.quota.sessions = 4;
    settings_.quota.communicators = 8;
    settings_.quota.buffers = 3;
    settings_.quota.plans = 2;
    settings_.quota.registered_bytes = 1 << 20;
  }
  void TearDown() override {
    stop();
    std::filesystem::remove_all(settings_.runtime_dir);
  }
  // gpus: the worker serves these, and a second one the host, as on a node with GPUs.
  void start(const std::vector<std::string>& gpus = {}) {
    plane_ = ControlPlane::create({.metrics = metrics_,
                                   .settings = std::make_shared<const Settings>(settings_),
                                   .kept_rings = kept_rings_,
                                   .actions = actions_})
                 .value();
    worker_ = std::make_unique<FakeWorker>(plane_->events());
    std::vector<std::string> warnings;
    auto sockets = open_sockets(settings_, AccessGroups::look_up(settings_.access), {}, warnings);
    ASSERT_TRUE(sockets) << sockets.error().message;
    recorder_ = FlightRecorder::create(64).value();
    std::vector<WorkerRef> workers{{"host:0", worker_.get(), recorder_.get(), {}}};
    if (!gpus.empty()) {
      worker_->gpus = true;
      host_worker_ = std::make_unique<FakeWorker>(plane_->events());
      workers = {{"gpu", worker_.get(), recorder_.get(), gpus, only_uid_, gpu_bytes_},
                 {"host:0", host_worker_.get(), recorder_.get(), {}}};
    }
    const Status served = plane_->serve(std::move(workers), std::move(*sockets));
    ASSERT_TRUE(served) << served.error().message;
    client_ = v1::NodeControl::NewStub(channel("client.sock"));
    admin_ = v1::NodeAdmin::NewStub(channel("admin.sock"));
  }
  void stop() {
    if (plane_) plane_->stop();
    worker_.reset();
    host_worker_.reset();
    plane_.reset();
  }

  std::string path(const char* name) const { return settings_.runtime_dir + "/" + name; }
  // Each channel has a connection of its own: gRPC would otherwise share one among equal targets.
  std::shared_ptr<grpc::Channel> channel(const char* name) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel("unix:" + path(name), grpc::InsecureChannelCredentials(),
                                     arguments);
  }
  template <typename Stub, typename Request, typename Reply>
  static Outcome call(Stub& stub,
                      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                      const Request& request, Reply* reply,
                      milliseconds limit = milliseconds(8000)) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    const grpc::Status status = (stub.*method)(&context, request, reply);
    const int reason = status.ok() ? 0 : reason_of(context);
    return {status, reason < 0 ? Reason::None : reason_from(static_cast<unsigned>(reason))};
  }

  struct Session {
    v1::AttachReply attached;
    v1::SessionRef ref;
    std::unique_ptr<FdClient> fds;
  };
  Outcome attach(v1::AttachReply& reply, std::uint32_t major = kRingAbiMajor,
                 const std::string& device = "") {
    v1::AttachRequest request;
    request.set_ring_abi_major(major);
    request.set_device(device);
    request.set_process_name("test");
    return call(*client_, &v1::NodeControl::Stub::Attach, request, &reply);
  }
  FdMessage hello(const v1::AttachReply& attached) const {
    FdMessage message = fd_request(FdMessageKind::Hello);
    message.session = attached.session();
    std::memcpy(message.token.data(), attached.session_token().data(), kTokenBytes);
    return message;
  }
  // Attached and bound.
  Session open_session(const std::string& device = "") {
    Session session;
    const Outcome outcome = attach(session.attached, kRingAbiMajor, device);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    session.ref.set_session(session.attached.session());
    session.ref.set_session_token(session.attached.session_token());
    session.fds = std::make_unique<FdClient>(path("fd.sock"));
    EXPECT_TRUE(session.fds->connected());
    const auto answer = session.fds->ask(hello(session.attached));
    EXPECT_TRUE(answer && answer->code == 0);
    return session;
  }
  Outcome join(const Session& session, const std::string& id, int rank, int ranks,
               v1::CreateCommunicatorReply* reply, std::uint64_t timeout_ms = 3000,
               const std::string& device = "") {
    v1::CreateCommunicatorRequest request;
    request.set_device(device);
    *request.mutable_session() = session.ref;
    request.set_unique_id(id);
    request.set_rank(rank);
    request.set_ranks(ranks);
    request.set_timeout_ms(timeout_ms);
    request.set_in_stream_abi(kInStreamAbi);
    request.set_launch_table_version(launch_table_version_);
    request.set_most_sms(most_sms_);
    v1::CreateCommunicatorReply ignored;
    return call(*client_, &v1::NodeControl::Stub::CreateCommunicator, request,
                reply != nullptr ? reply : &ignored);
  }
  Outcome allocate(const Session& session, std::uint64_t bytes, v1::BufferReply* reply,
                   const std::string& device = "") {
    v1::AllocateBufferRequest request;
    request.set_device(device);
    *request.mutable_session() = session.ref;
    request.set_bytes(bytes);
    return call(*client_, &v1::NodeControl::Stub::AllocateBuffer, request, reply);
  }
  Outcome detach(const Session& session) {
    v1::DetachRequest request;
    *request.mutable_session() = session.ref;
    v1::Empty reply;
    return call(*client_, &v1::NodeControl::Stub::Detach, request, &reply);
  }
  v1::StatusReply status() {
    v1::StatusReply reply;
    const Outcome outcome = call(*admin_, &v1::NodeAdmin::Stub::GetStatus, v1::Empty(), &reply);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    return reply;
  }
  // Of the limits that the status tells of; empty where it does not know that one.
  v1::LimitStatus limit(const std::string& name) {
    const v1::StatusReply told = status();
    for (const v1::LimitStatus& one : told.limits()) {
      if (one.name() == name) return one;
    }
    ADD_FAILURE() << "no limit is named " << name;
    return {};
  }
  static std::string unique_id(char fill) { return std::string(128, fill); }

  Settings settings_;
  std::vector<std::uint64_t> gpu_bytes_;                      // of each GPU
  std::optional<uid_t> only_uid_;                             // whom the GPUs' worker is for
  std::uint32_t launch_table_version_ = kLaunchTableVersion;  // of those that join
  std::uint32_t most_sms_ = 0;                                // likewise
  Metrics metrics_;
  ServiceManager no_systemd_;
  KeptRings kept_rings_{no_systemd_, metrics_};
  FakeActions actions_;
  std::unique_ptr<FlightRecorder> recorder_;
  std::unique_ptr<ControlPlane> plane_;
  std::unique_ptr<FakeWorker> worker_;
  std::unique_ptr<FakeWorker> host_worker_;
  std::unique_ptr<v1::NodeControl::Stub> client_;
  std::unique_ptr<v1::NodeAdmin::Stub> admin_;
};

}  // namespace arcomm::test

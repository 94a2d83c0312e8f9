// What a session on GPUs can ask of the control plane, one request after the other: memory by
// handle, by descriptor and in pieces, plans, ranks. Bytes become requests, whose numbers below 16
// are those of what the session has; the worker is the unit tests'. Whatever is asked, each call is
// answered exactly once, nothing reaches the worker that is not in bounds, and the end of the
// session gives everything back.
#include <fcntl.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/control/node_control.h"
#include "daemon/control/rpc/request_limits.h"
#include "daemon/session/kept_rings.h"
#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "proto/arcommd/v1/control.pb.h"
#include "proto/version.h"
#include "tests/unit/daemon/control/fake_worker.h"

namespace {

using namespace arcomm;

constexpr std::size_t kMostSteps = 32;
constexpr std::uint64_t kOwnNumbers = 16;

void demand(bool holds) {
  if (!holds) __builtin_trap();
}

// One for the whole run. Everything but wait_for() is the loop's.
class Node {
 public:
  static Node& get() {
    static Node node;
    return node;
  }
  ~Node() {
    loop_->stop();
    thread_.join();
    memory_thread_.stop();
    worker_.reset();
    loop_->clear();
  }

  // Runs `ask` on the loop until `answered` says that it has come to its end.
  void wait_for(const std::function<void(std::function<void()> answered)>& ask) {
    std::promise<void> ended;
    loop_->post([&] { ask([&ended] { ended.set_value(); }); });
    ended.get_future().wait();
  }
  // Until the worker has answered all that it was asked, and the loop heard it.
  void settle() {
    std::promise<void> told;
    worker_->inspect([&told](const Result<WorkerSnapshot>&) { told.set_value(); });
    told.get_future().wait();
    wait_for([](const std::function<void()>& answered) { answered(); });
  }
  NodeControl& control() { return *control_; }
  test::FakeWorker& worker() { return *worker_; }

 private:
  Node() {
    log::set_level(LogLevel::Error);
    worker_->gpus = true;
    auto settings = std::make_shared<Settings>();
    settings->rings.slots = 16;
    control_ = std::make_unique<NodeControl>(NodeControl::Parts{
        .loop = *loop_,
        .metrics = metrics_,
        .memory_thread = memory_thread_,
        .settings = std::move(settings),
        .kept_rings = kept_rings_,
        .workers = {{.device = "gpu", .worker = worker_.get(), .gpus = {"GPU-0", "GPU-1"}}}});
    thread_ = std::thread([this] { loop_->run(); });
  }

  Metrics metrics_;
  ServiceManager no_systemd_;
  KeptRings kept_rings_{no_systemd_, metrics_};
  std::unique_ptr<EventLoop> loop_ = EventLoop::create().value();
  TaskThread memory_thread_;
  std::unique_ptr<test::FakeWorker> worker_ = std::make_unique<test::FakeWorker>();
  std::unique_ptr<NodeControl> control_;
  std::thread thread_;
};

// A session, and what it asks for.
class Asking {
 public:
  explicit Asking(Node& node) : node_(node) {
    node_.wait_for([this](const std::function<void()>& answered) {
      v1::AttachRequest request;
      request.set_ring_abi_major(kRingAbiMajor);
      request.set_device("gpu");
      node_.control().attach(caller_, request,
                             [this, answered](const Result<v1::AttachReply>& reply) {
                               demand(reply.ok());
                               session_.set_session(reply->session());
                               session_.set_session_token(reply->session_token());
                               answered();
                             });
    });
  }

  // Of kind % 8. The answers come in the order of the worker's, or at the end.
  void step(std::uint8_t kind, const std::string& bytes) {
    NodeControl& control = node_.control();
    switch (kind % 8) {
      case 0:
      case 1:
        return ask<v1::RegisterBufferRequest, v1::BufferReply>(
            bytes, [&](v1::RegisterBufferRequest& request, Answer<v1::BufferReply> answer) {
              use_own(offers_, *request.mutable_chunks());
              if (request.offered_fd() != 0)
                request.set_offered_fd(own(offers_, request.offered_fd()));
              control.register_buffer(caller_, request, std::move(answer));
            });
      case 2:
        return ask<v1::CreatePlanRequest, v1::CreatePlanReply>(
            bytes, [&](v1::CreatePlanRequest& request, Answer<v1::CreatePlanReply> answer) {
              request.set_member(own(members_, request.member()));
              request.set_send_buffer(own(buffers_, request.send_buffer()));
              request.set_recv_buffer(own(buffers_, request.recv_buffer()));
              control.create_plan(caller_, request, std::move(answer));
            });
      case 3:
        return ask<v1::CreateCommunicatorRequest, v1::CreateCommunicatorReply>(
            bytes, [&](v1::CreateCommunicatorRequest& request,
                       Answer<v1::CreateCommunicatorReply> answer) {
              request.mutable_unique_id()->resize(sizeof(UniqueIdBytes));
              caller_.call = ++last_call_;
              control.create_communicator(caller_, request, std::move(answer));
            });
      case 4:
        return ask<v1::AllocateBufferRequest, v1::BufferReply>(
            bytes, [&](v1::AllocateBufferRequest& request, Answer<v1::BufferReply> answer) {
              control.allocate_buffer(caller_, request, std::move(answer));
            });
      case 5:
        return ask<v1::ReleaseBufferRequest, v1::Empty>(
            bytes, [&](v1::ReleaseBufferRequest& request, Answer<v1::Empty> answer) {
              request.set_buffer(own(buffers_, request.buffer()));
              for (std::uint64_t& ticket : *request.mutable_offered_fds())
                ticket = own(offers_, ticket);
              control.release_buffer(caller_, request, std::move(answer));
            });
      case 6:
        return offer();
      case 7:
        return control.cancel_communicator(last_call_);
    }
  }
  void detach(const std::function<void()>& answered) {
    v1::DetachRequest request;
    *request.mutable_session() = session_;
    check_worker();
    node_.control().detach(caller_, request, [answered](const Result<v1::Empty>& reply) {
      demand(reply.ok());
      answered();
    });
  }
  void expect_nothing_left() const {
    demand(asked_ == answered_);
    for (std::size_t kind = 0; kind < kQuotaKinds; ++kind)
      demand(node_.control().quotas().total(static_cast<QuotaKind>(kind)) == 0);
    demand(node_.worker().buffer_specs().empty());
    demand(node_.control().rendezvous().forming().empty());
  }

 private:
  template <typename Request, typename Reply>
  void ask(const std::string& bytes, const std::function<void(Request&, Answer<Reply>)>& call) {
    Request request;
    if (!request.ParseFromString(bytes)) return;
    *request.mutable_session() = session_;
    if (!check_request(request)) return;
    ++asked_;
    call(request, [this, heard = std::make_shared<bool>(false)](const Result<Reply>& reply) {
      demand(!std::exchange(*heard, true));
      ++answered_;
      if (reply) remember(*reply);
    });
  }
  void remember(const v1::BufferReply& reply) { buffers_.push_back(reply.buffer()); }
  void remember(const v1::CreateCommunicatorReply& reply) { members_.push_back(reply.member()); }
  void remember(const v1::CreatePlanReply&) {}
  void remember(const v1::Empty&) {}

  // A small number stands for what the session got so many answers ago.
  static std::uint64_t own(const std::vector<std::uint64_t>& had, std::uint64_t named) {
    return named == 0 || named >= kOwnNumbers || named > had.size() ? named
                                                                    : had[had.size() - named];
  }
  template <typename Chunks>
  void use_own(const std::vector<std::uint64_t>& had, Chunks& chunks) {
    for (v1::MemoryChunk& chunk : chunks) {
      if (chunk.offered_fd() != 0) chunk.set_offered_fd(own(had, chunk.offered_fd()));
    }
  }
  void offer() {
    const Result<SessionEntry*> entry = node_.control().ledger().authorize(
        session_.session(), session_.session_token(), caller_.peer.uid);
    demand(entry.ok());
    Result<std::uint64_t> ticket = node_.control().ledger().add_offer(
        **entry, UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
    if (ticket) offers_.push_back(*ticket);
  }
  void check_worker() const {
    for (const BufferSpec& spec : node_.worker().buffer_specs()) {
      const MemoryHandle& handle = spec.handle;
      demand(spec.device == "GPU-0" || spec.device == "GPU-1");
      demand(handle.length_bytes != 0);
      demand(spec.chunks.size() <= kMostChunks);
      if (handle.allocation_bytes == 0) continue;  // that the worker has allocated itself
      demand(handle.offset_bytes <= handle.allocation_bytes &&
             handle.length_bytes <= handle.allocation_bytes - handle.offset_bytes);
      std::uint64_t sum = 0;
      for (const MemoryChunk& chunk : spec.chunks) sum += chunk.bytes;
      demand(spec.chunks.empty() || sum == handle.allocation_bytes);
      demand(spec.chunks.empty() || handle.kind != MemoryKind::CudaIpc);
    }
  }

  Node& node_;
  Caller caller_{.connection = 1, .peer = {.pid = 1, .uid = 1000, .gid = 1000}};
  v1::SessionRef session_;
  std::vector<std::uint64_t> offers_, buffers_, members_;
  std::size_t asked_ = 0, answered_ = 0;
  static inline std::uint64_t last_call_ = 0;
};

}  // namespace

// Steps: a byte for the kind and whether the next one waits for the answer, one for the length of
// the request, the request.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Node& node = Node::get();
  Asking asking(node);
  constexpr std::uint8_t kThenWait = 8;
  std::size_t at = 0;
  for (std::size_t steps = 0; steps < kMostSteps && at + 2 <= size; ++steps) {
    const std::uint8_t kind = data[at];
    const std::size_t length = std::min<std::size_t>(data[at + 1], size - at - 2);
    const std::string request(reinterpret_cast<const char*>(data + at + 2), length);
    node.wait_for([&](const std::function<void()>& answered) {
      asking.step(kind, request);
      answered();
    });
    if ((kind & kThenWait) != 0) node.settle();
    at += 2 + length;
  }
  node.wait_for([&](const std::function<void()>& answered) { asking.detach(answered); });
  node.wait_for([&](const std::function<void()>& answered) {
    asking.expect_nothing_left();
    answered();
  });
  return 0;
}

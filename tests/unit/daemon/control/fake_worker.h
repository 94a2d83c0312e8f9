// A device worker that owns no device: answers every message on a thread of its own, remembers what
// it was told, and can be made to refuse or to keep silent. Thread: any.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/rpc/task_thread.h"
#include "daemon/exec/worker/device_worker.h"

namespace arcomm::test {

class FakeWorker final : public DeviceWorker {
 public:
  explicit FakeWorker(WorkerEvents events = {}) : events_(std::move(events)) {}
  ~FakeWorker() override { thread_.stop(); }

  struct Closed {
    SessionId session;
    Reason reason;
    std::string why;
  };

  // What it does next.
  std::atomic<bool> silent{false};          // never answers
  std::atomic<bool> holding{false};         // answers at let_go()
  std::atomic<bool> refuse_buffers{false};  // add_buffer fails
  // What is released, or refused, stays until let_go_of_released(), or for good.
  std::atomic<bool> keeps_released{false}, is_held_up{false};
  std::atomic<int> asked_to_let_go{0};
  std::atomic<std::uint64_t> turns{0};
  std::atomic<bool> gpus{false};             // it serves GPUs, whose granule is kGranule
  std::atomic<bool> refuse_mailbox{false};   // export_mailbox fails
  std::atomic<bool> in_stream{false};        // every communicator is
  std::atomic<std::uint64_t> paid_ahead{0};  // plans
  std::atomic<std::uint64_t> paid_plans{0};  // those too that it was told to add; of all sessions
  const LaunchTable launches =               // of every communicator
      LaunchTable::create(
          2, {{.most_bytes = 4096, .codecs = kResidentCodecs, .path = LaunchPath::Resident}, {}})
          .value();
  static constexpr std::uint64_t kGranule = 2 << 20;

  std::vector<Closed> closed() {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  std::size_t open_sessions() {
    std::lock_guard lock(mutex_);
    return sessions_.size();
  }
  std::size_t buffers() {
    std::lock_guard lock(mutex_);
    return buffers_.size();
  }
  // Those that were opened and not taken yet; and the peers of those that were closed.
  std::vector<LinkSpec> take_links() {
    std::lock_guard lock(mutex_);
    return std::exchange(links_, {});
  }
  std::vector<std::pair<PeerId, std::string>> closed_links() {
    std::lock_guard lock(mutex_);
    return closed_links_;
  }
  void lose_link(PeerId peer, Error why) { events_.link_lost(peer, std::move(why)); }
  std::size_t plans() {
    std::lock_guard lock(mutex_);
    return plans_.size();
  }
  // As their session does in its ring, where what was paid for one serves the next.
  void remove_plans_in_ring() {
    std::lock_guard lock(mutex_);
    plans_.clear();
  }
  std::size_t held() {
    std::lock_guard lock(held_mutex_);
    return held_.size();
  }
  void let_go() {
    std::lock_guard lock(held_mutex_);
    holding = false;
    for (auto& one : std::exchange(held_, {})) thread_.post(std::move(one));
  }
  std::vector<MemberId> left() {
    std::lock_guard lock(mutex_);
    return left_;
  }
  std::vector<CommunicatorSpec> formed() {
    std::lock_guard lock(mutex_);
    return formed_;
  }
  // As a real one does when a rank fails: the communicator leaves the ready state.
  void revoke(const UniqueIdBytes& id, std::uint64_t epoch, Reason reason) {
    {
      std::lock_guard lock(mutex_);
      revoked_[{id, epoch}] = reason;
    }
    if (events_.communicator_revoked) events_.communicator_revoked(id, epoch, reason, "");
  }
  // The same, before anybody is told.
  void revoke_quietly(const UniqueIdBytes& id, std::uint64_t epoch, Reason reason) {
    std::lock_guard lock(mutex_);
    revoked_[{id, epoch}] = reason;
  }
  void lose(SessionId session, Reason reason, std::string why) {
    events_.session_lost(session, reason, std::move(why));
  }

  void run() override {}
  void stop() override {}

  void open_session(SessionSpec spec, Done<void> done) override {
    const SessionId id = spec.id;
    {
      std::lock_guard lock(mutex_);
      sessions_.emplace(id, std::move(spec));
    }
    answer(std::move(done), Status());
  }
  void close_session(SessionId session, Reason reason, std::string why, Done<void> done) override {
    {
      std::lock_guard lock(mutex_);
      sessions_.erase(session);
      std::erase_if(buffers_, [&](const auto& one) {
        if (one.second.first != session) return false;
        release(one.second.second.token);
        return true;
      });
      std::erase_if(plans_, [&](const auto& one) { return one.second == session; });
      std::erase_if(mailboxes_, [&](const auto& one) {
        if (one.second.first != session) return false;
        release(one.second.second);
        return true;
      });
      closed_.push_back({session, reason, std::move(why)});
    }
    answer(std::move(done), Status());
  }
  void add_buffer(SessionId session, BufferSpec spec, Done<BufferId> done) override {
    if (refuse_buffers) {
      std::lock_guard lock(mutex_);
      release(spec.token);
      return answer(std::move(done), Result<BufferId>(error(ErrorCode::ResourceExhausted,
                                                            Reason::OutOfMemory, "cannot map")));
    }
    std::lock_guard lock(mutex_);
    const BufferId id{next_++, 1};
    buffers_.emplace(id, std::pair{session, std::move(spec)});
    answer(std::move(done), Result<BufferId>(id));
  }
  void allocate_buffer(SessionId session, AllocationSpec wanted,
                       Done<AllocatedBuffer> done) override {
    const std::uint64_t whole = (wanted.bytes + kGranule - 1) / kGranule * kGranule;
    BufferSpec spec;
    spec.handle.length_bytes = whole;
    spec.device = std::move(wanted.device);
    spec.token = std::move(wanted.token);
    std::lock_guard lock(mutex_);
    const BufferId id{next_++, 1};
    buffers_.emplace(id, std::pair{session, std::move(spec)});
    answer(std::move(done), Result<AllocatedBuffer>(AllocatedBuffer{id, memory(), whole}));
  }
  void open_link(LinkSpec link, Done<void> done) override {
    {
      std::lock_guard lock(mutex_);
      links_.push_back(std::move(link));
    }
    answer(std::move(done), Status{});
  }
  void close_link(PeerId peer, Error why, Done<void> done) override {
    {
      std::lock_guard lock(mutex_);
      closed_links_.emplace_back(peer, std::move(why.message));
    }
    answer(std::move(done), Status{});
  }
  void export_mailbox(SessionId, MemberId, Done<MailboxDescriptors> done) override {
    if (refuse_mailbox) {
      return answer(std::move(done), Result<MailboxDescriptors>(error(ErrorCode::ResourceExhausted,
                                                                      Reason::OutOfMemory, "no")));
    }
    MailboxDescriptors box;
    box.mailbox_bytes = kGranule;
    box.exchange_bytes = in_stream ? kGranule : 0;
    box.launches = launches;
    box.descriptors.push_back(memory());
    box.descriptors.push_back(memory());
    answer(std::move(done), Result<MailboxDescriptors>(std::move(box)));
  }
  bool on_gpus() const override { return gpus; }
  // What the buffers were added with, without their descriptors.
  std::vector<BufferSpec> buffer_specs() {
    std::lock_guard lock(mutex_);
    std::vector<BufferSpec> specs;
    for (const auto& [id, held] : buffers_) {
      const BufferSpec& spec = held.second;
      specs.push_back({.memory = {}, .handle = spec.handle, .device = spec.device, .chunks = {}});
      for (const MemoryChunk& chunk : spec.chunks) {
        specs.back().chunks.push_back({.memory = {}, .fabric = chunk.fabric, .bytes = chunk.bytes});
      }
    }
    return specs;
  }
  void remove_buffer(SessionId, BufferId buffer, Done<void> done) override {
    std::lock_guard lock(mutex_);
    if (const auto found = buffers_.find(buffer); found != buffers_.end()) {
      release(found->second.second.token);
      buffers_.erase(found);
    }
    answer(std::move(done), Status());
  }
  void let_go_of_released(uid_t, std::uint64_t, Done<void> done) override {
    ++asked_to_let_go;
    std::lock_guard lock(mutex_);
    if (is_held_up && !released_.empty()) {
      return answer(std::move(done),
                    Status(error(ErrorCode::FailedPrecondition, Reason::None, "a GPU is full")));
    }
    released_.clear();
    answer(std::move(done), Status());
  }
  void add_plan(SessionId session, PlanSpec, Done<PlanId> done) override {
    std::lock_guard lock(mutex_);
    const PlanId id{next_++, 1};
    plans_.emplace(id, session);
    ++paid_plans;
    answer(std::move(done), Result<PlanId>(id));
  }
  void pay_plans(SessionId, std::uint64_t more) override {
    paid_ahead += more;
    paid_plans += more;
  }
  void remove_plan(SessionId, PlanId plan, Done<void> done) override {
    std::lock_guard lock(mutex_);
    if (plans_.erase(plan) == 0) {
      return answer(std::move(done),
                    Status(error(ErrorCode::NotFound, Reason::UnknownHandle, "no such plan")));
    }
    --paid_plans;
    answer(std::move(done), Status());
  }

  void form_communicator(CommunicatorSpec spec, Done<std::vector<MemberId>> done) override {
    std::vector<MemberId> members;
    {
      std::lock_guard lock(mutex_);
      for (std::size_t i = 0; i < spec.ranks.size(); ++i) {
        members.push_back({next_++, 1});
        epochs_[members.back()] = {spec.unique_id, spec.epoch};
        mailboxes_[members.back()] = {spec.ranks[i].session, std::move(spec.ranks[i].token)};
      }
      formed_.push_back(std::move(spec));
    }
    answer(std::move(done), Result<std::vector<MemberId>>(members));
  }
  void abort_communicator(SessionId, MemberId member, std::string, Done<void> done) override {
    std::pair<UniqueIdBytes, std::uint64_t> of;
    {
      std::lock_guard lock(mutex_);
      of = epochs_[member];
    }
    revoke(of.first, of.second, Reason::RemoteAborted);
    answer(std::move(done), Status());
  }
  void leave_communicator(SessionId, MemberId member, Done<void> done) override {
    std::lock_guard lock(mutex_);
    left_.push_back(member);
    if (const auto found = mailboxes_.find(member); found != mailboxes_.end()) {
      release(found->second.second);
      mailboxes_.erase(found);
    }
    answer(std::move(done), Status());
  }
  void describe(SessionId, MemberId member, Done<CommunicatorSnapshot> done) override {
    std::lock_guard lock(mutex_);
    CommunicatorSnapshot view;
    std::tie(view.unique_id, view.epoch) = epochs_[member];
    const auto revoked = revoked_.find({view.unique_id, view.epoch});
    view.reason = revoked == revoked_.end() ? Reason::None : revoked->second;
    view.state = view.reason == Reason::None ? "ready" : "revoked: test";
    answer(std::move(done), Result<CommunicatorSnapshot>(view));
  }
  void inspect(Done<WorkerSnapshot> done) override {
    WorkerSnapshot view;
    view.device = "host:0";
    view.state = "sleeping";
    {
      std::lock_guard lock(mutex_);
      for (const auto& [id, spec] : sessions_) {
        SessionSnapshot session;
        session.id = id;
        session.peer = spec.peer;
        session.process_name = spec.process_name;
        view.sessions.push_back(session);
      }
    }
    answer(std::move(done), Result<WorkerSnapshot>(view));
  }
  void begin_measuring(std::uint32_t, std::uint64_t, Done<std::uint64_t> done) override {
    answer(std::move(done), Result<std::uint64_t>(no_kernels()));
  }
  void measure(GpuMeasurement, Done<double> done) override {
    answer(std::move(done), Result<double>(no_kernels()));
  }
  void end_measuring(Done<void> done) override { answer(std::move(done), Status()); }
  void measure_flag(std::uint32_t, Done<FlagEcho> done) override {
    answer(std::move(done), Result<FlagEcho>(no_kernels()));
  }
  void use_settings(std::shared_ptr<const Settings>) override {}
  void use_tuning(std::shared_ptr<const TuningTable>) override {}
  void drain(std::chrono::nanoseconds, Done<void> done) override {
    answer(std::move(done), Status());
  }
  std::uint64_t progress() const override { return turns; }

 private:
  // Under mutex_; what has the token goes behind it.
  void release(const MemoryToken& token) {
    if (keeps_released && token.use_count() != 0) released_.push_back(token);
  }
  static Error no_kernels() {
    return error(ErrorCode::Unimplemented, Reason::Unsupported, "this worker measures nothing");
  }
  static UniqueFd memory() { return UniqueFd(::memfd_create("fake", MFD_CLOEXEC)); }
  template <typename R>
  void answer(std::function<void(R)> done, R result) {
    if (silent) return;
    const auto kept = std::make_shared<R>(std::move(result));
    std::function<void()> told = [done = std::move(done), kept] { done(std::move(*kept)); };
    std::lock_guard lock(held_mutex_);
    if (holding) {
      held_.push_back(std::move(told));
    } else {
      thread_.post(std::move(told));
    }
  }

  WorkerEvents events_;
  std::mutex mutex_;
  std::map<SessionId, SessionSpec> sessions_;
  std::map<BufferId, std::pair<SessionId, BufferSpec>> buffers_;
  std::map<MemberId, std::pair<SessionId, MemoryToken>> mailboxes_;
  std::vector<MemoryToken> released_;
  std::vector<LinkSpec> links_;
  std::vector<std::pair<PeerId, std::string>> closed_links_;
  std::map<PlanId, SessionId> plans_;
  std::map<MemberId, std::pair<UniqueIdBytes, std::uint64_t>> epochs_;
  std::map<std::pair<UniqueIdBytes, std::uint64_t>, Reason> revoked_;
  std::vector<Closed> closed_;
  std::vector<MemberId> left_;
  std::vector<CommunicatorSpec> formed_;
  std::uint32_t next_ = 1;
  std::mutex held_mutex_;  // after mutex_
  std::vector<std::function<void()>> held_;
  TaskThread thread_;
};

}  // namespace arcomm::test

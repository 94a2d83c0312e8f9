// A GPU worker on a thread of its own over GPUs of host memory, and clients whose streams are this
// test's own hands on the mailboxes and doorbells.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/exec/gpu/gpu_backend.h"
#include "tests/unit/daemon/exec/gpu/fakes/fake_gpu.h"
#include "tests/unit/daemon/exec/gpu/fakes/fake_grid.h"
#include "tests/unit/daemon/exec/gpu/fakes/fake_launcher.h"
#include "tests/unit/daemon/exec/worker/worker_fixture.h"

namespace arcomm::test {

// The memory behind a descriptor, mapped as a client would.
class Mapped {
 public:
  Mapped() = default;
  Mapped(UniqueFd fd, std::size_t bytes) : bytes_(bytes) {
    base_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    EXPECT_NE(base_, MAP_FAILED);
  }
  Mapped(Mapped&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}
  Mapped& operator=(Mapped&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapped() {
    if (base_ != nullptr) ::munmap(base_, bytes_);
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(base_);
  }

 private:
  void* base_ = nullptr;
  std::size_t bytes_ = 0;
};

// One rank: a session, its mailbox, and a buffer with send in front and recv behind.
struct GpuRank {
  Client* client = nullptr;
  MemberId member;
  BufferId buffer;
  Mapped mailbox, doorbells, memory;
  UniqueFd image;
  std::uint64_t exchange_bytes = 0;
  LaunchTable launches;
  std::vector<Mapped> exchanges;
  std::size_t half_bytes = 0;
  std::uint32_t posted[kLaunchPaths] = {};

  DeviceMailbox& box() const { return *mailbox.as<DeviceMailbox>(); }
  float* send() const { return memory.as<float>(); }
  float* recv() const { return memory.as<float>() + half_bytes / sizeof(float); }
  void start(PlanId plan, LaunchPath path, std::uint32_t identity = kNoIdentity) {
    open_doorbell(++posted[static_cast<int>(path)], plan, path, identity);
  }
  void open_doorbell(std::uint32_t number, PlanId plan, LaunchPath path,
                     std::uint32_t identity = kNoIdentity) {
    const std::uint64_t doorbell =
        to_word(Doorbell{.number = number, .plan = plan.index, .identity = identity});
    auto& words = *doorbells.as<HostDoorbells>();
    if (path == LaunchPath::Launched) {
      store_word(box().paths[1].doorbell, doorbell);
      return store_word(words.launched, doorbell);
    }
    store_word(box().paths[0].doorbell, doorbell);
    __atomic_store_n(&words.resident_posted, number, __ATOMIC_RELEASE);
  }
  // Waits for the last start; false: not within the patience, or the mailbox was closed.
  bool wait(LaunchPath path) const {
    const int index = static_cast<int>(path);
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < until) {
      if (done_from(load_word(box().paths[index].done)).number == posted[index]) return true;
      if (load_word(box().closed) != 0) return false;
      std::this_thread::yield();
    }
    return false;
  }
  // What the mailbox was closed with; code 0: nothing, within `patience`.
  Done closed(std::chrono::nanoseconds patience = kPatience) const {
    const auto until = std::chrono::steady_clock::now() + patience;
    do {
      const std::uint64_t word = load_word(box().closed);
      if (word != 0) return done_from(word);
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < until);
    return {};
  }
};

class GpuWorkerTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSmall = 64;             // elements: resident
  static constexpr std::uint64_t kLarge = 384ull * 1024;  // launched

  void SetUp() override {
    Settings settings;
    settings.gpu.lease_ms = 20;
    start(settings);
  }
  void TearDown() override { finish(); }

  void start(Settings settings) {
    finish();
    settings_ = std::make_shared<Settings>(std::move(settings));
    recorder_ = FlightRecorder::create(1024, 1024).value();
    metrics_ = std::make_unique<Metrics>();
    node_.gates_expire = false;  // not because the machine is slow
    std::vector<Device*> gpus;
    for (int i = 0; i < 3; ++i) {
      gpus_.push_back(std::make_unique<FakeGpu>(node_, i));
      gpus.push_back(gpus_.back().get());
    }
    const auto open = [this](Device& gpu) -> Result<GpuHardware> {
      return GpuHardware{std::make_unique<FakeGrid>(node_),
                         std::make_unique<FakeLauncher>(node_, gpu.ordinal()),
                         4096,
                         sms_,
                         InStreamImages{node_.in_stream_image, node_.coded_image},
                         node_.operations_before};
    };
    DeviceWorker::Parts parts{.device = gpus[0]->name(),
                              .open_backend = gpu_backend_on(gpus, open),
                              .recorder = *recorder_,
                              .metrics = *metrics_,
                              .settings = settings_,
                              .tuning = std::make_shared<TuningTable>(default_tuning()),
                              .events = {.session_lost =
                                             [this](SessionId, Reason reason, const std::string&) {
                                               const std::lock_guard lock(mutex_);
                                               lost_.push_back(reason);
                                             },
                                         .communicator_revoked = {}}};
    worker_ = DeviceWorker::create(std::move(parts)).value();
    ended_ = false;
    thread_ = std::thread([this] {
      worker_tid_ = ::gettid();
      worker_->run();
      ended_ = true;
    });
  }
  void start_with(const std::string& algorithm) {
    Settings settings;
    settings.gpu.algorithm = algorithm;
    start(settings);
  }
  void finish() {
    if (worker_ == nullptr) return;
    worker_->stop();
    if (thread_.joinable()) thread_.join();
    ranks_.clear();
    clients_.clear();
    worker_.reset();
    EXPECT_EQ(node_.memories, 0) << "GPU memory was not let go";
    gpus_.clear();
  }

  GpuRank& rank(int gpu, std::size_t half_bytes) {
    const SessionId id{next_session_++, 1};
    clients_.push_back(std::make_unique<Client>(
        *worker_, id, 64, static_cast<pid_t>(900 + clients_.size()), SessionLimits{}));
    ranks_.push_back(std::make_unique<GpuRank>());
    GpuRank& made = *ranks_.back();
    made.client = clients_.back().get();
    made.half_bytes = half_bytes;
    Result<AllocatedBuffer> buffer = await<AllocatedBuffer>([&](auto done) {
      worker_->allocate_buffer(
          id, {.device = "GPU-" + std::to_string(gpu), .bytes = 2 * half_bytes}, done);
    });
    EXPECT_TRUE(buffer.ok()) << (buffer ? "" : buffer.error().to_string());
    made.buffer = buffer->buffer;
    made.memory = Mapped(std::move(buffer->memory), 2 * half_bytes);
    return made;
  }
  // Rank i on GPU i, where nothing else is said.
  void form(const std::vector<GpuRank*>& ranks, std::vector<int> gpus = {0, 1, 2}) {
    CommunicatorSpec spec;
    spec.unique_id.fill(std::byte{++names_});
    spec.most_sms = most_sms_;
    node_.gpus = gpus;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      spec.ranks.push_back(
          {ranks[i]->client->id(), static_cast<Rank>(i), "GPU-" + std::to_string(gpus[i]),
           i < see_.size() ? see_[i] : see_.back(), i < abis_.size() ? abis_[i] : kInStreamAbi,
           i < hindrances_.size() ? hindrances_[i] : InStreamHindrance::None,
           i < tokens_.size() ? std::exchange(tokens_[i], {}) : MemoryToken()});
    const auto formed =
        await<std::vector<MemberId>>([&](auto done) { worker_->form_communicator(spec, done); });
    ASSERT_TRUE(formed.ok()) << formed.error().to_string();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      GpuRank& one = *ranks[i];
      one.member = (*formed)[i];
      Result<MailboxDescriptors> box = await<MailboxDescriptors>(
          [&](auto done) { worker_->export_mailbox(one.client->id(), one.member, done); });
      ASSERT_TRUE(box.ok()) << box.error().to_string();
      one.mailbox = Mapped(std::move(box->descriptors[0]), box->mailbox_bytes);
      one.doorbells = Mapped(std::move(box->descriptors[1]), sizeof(HostPages));
      one.exchange_bytes = box->exchange_bytes;
      one.launches = box->launches;
      for (std::uint32_t& posted : one.posted) posted = node_.operations_before;
      for (MailboxPath& path : one.box().paths)  // as those before have left it
        store_word(path.doorbell, to_word(Doorbell{.number = node_.operations_before}));
      if (box->exchange_bytes == 0) continue;
      one.image = std::move(box->descriptors[2]);
      for (std::size_t other = 3; other < box->descriptors.size(); ++other)
        one.exchanges.emplace_back(std::move(box->descriptors[other]), box->exchange_bytes);
    }
  }
  std::vector<GpuRank*> group(int ranks) {
    std::vector<GpuRank*> made;
    made.reserve(static_cast<std::size_t>(ranks));
    for (int i = 0; i < ranks; ++i) made.push_back(&rank(i, kLarge * sizeof(float)));
    form(made);
    return made;
  }
  // Another communicator of the same clients, on the same GPUs.
  std::vector<GpuRank*> group_again(const std::vector<GpuRank*>& others) {
    std::vector<GpuRank*> made;
    for (const GpuRank* other : others) {
      ranks_.push_back(std::make_unique<GpuRank>());
      made.push_back(ranks_.back().get());
      made.back()->client = other->client;
    }
    form(made);
    return made;
  }
  Result<PlanId> try_plan(const GpuRank& rank, std::uint64_t count, milliseconds timeout) {
    return try_plan(rank, all_reduce_of(count), timeout);
  }
  Result<PlanId> try_plan(const GpuRank& rank, const OperationSpec& called, milliseconds timeout,
                          bool in_place = false) {
    PlanSpec spec;
    spec.member = rank.member;
    spec.send_buffer = spec.recv_buffer = rank.buffer;
    spec.recv_offset_bytes = in_place ? 0 : rank.half_bytes;
    spec.spec = called;
    spec.timeout_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(timeout).count());
    return await<PlanId>([&](auto done) { worker_->add_plan(rank.client->id(), spec, done); });
  }
  PlanId plan(const GpuRank& rank, std::uint64_t count,
              milliseconds timeout = std::chrono::seconds(60)) {
    const Result<PlanId> made = try_plan(rank, count, timeout);
    EXPECT_TRUE(made.ok()) << (made ? "" : made.error().to_string());
    return made ? *made : PlanId{};
  }
  Result<void> remove_plan(const GpuRank& rank, PlanId plan) {
    return await<void>([&](auto done) { worker_->remove_plan(rank.client->id(), plan, done); });
  }
  void expect_closed(const GpuRank& rank, ErrorCode code, Reason reason, Rank culprit) {
    const Done closed = rank.closed();
    EXPECT_EQ(name_of(error_code_from(closed.code)), name_of(code));
    EXPECT_EQ(name_of(reason_from(closed.reason)), name_of(reason));
    EXPECT_EQ(closed.culprit_rank, culprit);
  }
  WorkerSnapshot inspect() {
    return await<WorkerSnapshot>([&](auto done) { worker_->inspect(done); }).value();
  }
  template <typename Condition>
  bool eventually(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }
  // The worker answers between two turns.
  void turn(int times) {
    for (int i = 0; i < times; ++i) inspect();
  }
  // As the flight recorder numbers them.
  std::set<std::uint8_t> recorded_algorithms() const {
    std::set<std::uint8_t> seen;
    for (const FlightRecord& record : recorder_->snapshot()) seen.insert(record.algorithm);
    return seen;
  }
  // So many operations on fresh ranks, with the right sums.
  void expect_serving(std::uint64_t count, int rounds = 1) {
    const auto ranks = group(2);
    // What would be in-stream may be called at the doorbells as well.
    const LaunchPath path =
        ranks[0]->launches.find({.bytes = count * sizeof(float)}).path == LaunchPath::Resident
            ? LaunchPath::Resident
            : LaunchPath::Launched;
    std::vector<PlanId> plans;
    plans.reserve(ranks.size());
    for (GpuRank* rank : ranks) plans.push_back(plan(*rank, count));
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < 2; ++i) {
        for (std::uint64_t e = 0; e < count; ++e)
          ranks[i]->send()[e] = static_cast<float>(round + static_cast<int>(i));
        ranks[i]->start(plans[i], path);
      }
      for (GpuRank* rank : ranks) {
        ASSERT_TRUE(rank->wait(path));
        ASSERT_EQ(rank->recv()[0], static_cast<float>(2 * round + 1));
        ASSERT_EQ(rank->recv()[count - 1], static_cast<float>(2 * round + 1));
      }
    }
  }

  FakeNode node_;
  std::uint32_t sms_ = 132;  // of each GPU to come
  // Which GPUs each rank's process sees; the last one's too, where there are more ranks.
  std::vector<std::vector<std::string>> see_{{"GPU-0", "GPU-1", "GPU-2"}};
  std::vector<std::uint32_t> abis_;            // kInStreamAbi where there are more ranks
  std::uint32_t most_sms_ = 0;                 // of communicators that are formed from now on
  std::vector<InStreamHindrance> hindrances_;  // None where there are more ranks
  std::vector<MemoryToken> tokens_;  // of the next ranks' mailboxes; none where there are more
  std::shared_ptr<Settings> settings_;
  std::unique_ptr<FlightRecorder> recorder_;
  std::unique_ptr<Metrics> metrics_;
  std::vector<std::unique_ptr<FakeGpu>> gpus_;
  std::unique_ptr<DeviceWorker> worker_;
  std::atomic<bool> ended_{false};  // run() has returned
  std::atomic<pid_t> worker_tid_{0};
  std::thread thread_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<GpuRank>> ranks_;
  std::uint32_t next_session_ = 0;
  std::uint8_t names_ = 0;
  std::mutex mutex_;
  std::vector<Reason> lost_;
};

}  // namespace arcomm::test

// The worker's own look at the clock before it starts anything: between a sweep of deadlines and
// the start there may be work of others, and what runs past its deadline writes into memory that
// its client has taken back.
#include "daemon/exec/host/host_backend.h"
#include "daemon/exec/worker/control_requests.h"
#include "daemon/exec/worker/worker.h"
#include "tests/unit/daemon/exec/worker/worker_fixture.h"

namespace arcomm::test {
namespace {

// Verb by verb on this thread, with clients' rings.
class WorkerDeadlineTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kCount = 4;

  WorkerDeadlineTest() {
    CommunicatorSpec spec;
    for (std::uint32_t i = 0; i < 2; ++i) {
      Result<ring::Segment> segment = ring::Segment::create(64, {i, 1});
      keepers_.push_back(ring::Segment::open(duplicate(segment->fd())).value());
      SessionSpec session{.id = {i, 1},
                          .peer = {static_cast<pid_t>(700 + i), 1000, 1000},
                          .process_name = "client",
                          .segment = std::move(*segment),
                          .doorbell = std::move(ring::EventDoorbell::create()).value(),
                          .limits = {}};
      EXPECT_TRUE(requests_.open_session(std::move(session), now_ns()).ok());
      memories_.push_back(std::make_unique<SharedBytes>(8192));
      BufferSpec buffer = memories_.back()->spec();
      buffers_.push_back(requests_.add_buffer({i, 1}, buffer).value());
      spec.ranks.push_back({.session = {i, 1}, .rank = static_cast<Rank>(i)});
    }
    std::unique_ptr<CommunicatorExtension> made;
    members_ = requests_.form_communicator(spec, made).value().value();
  }
  void call(std::size_t rank, std::chrono::nanoseconds timeout) {
    ring::WorkRequest request;
    request.dtype = static_cast<std::uint8_t>(DType::Float32);
    request.op = static_cast<std::uint8_t>(ReduceOp::Sum);
    request.member = members_[rank].bits();
    request.send_buffer = request.recv_buffer = buffers_[rank].bits();
    request.recv_offset_bytes = 4096;
    request.send_count = request.recv_count = kCount;
    request.submitted_ns = now_ns();
    request.timeout_ns = static_cast<std::uint64_t>(timeout.count());
    memories_[rank]->as<float>()[0] = 1;
    ring::Producer<ring::WorkRequest> producer(keepers_[rank].requests());
    EXPECT_EQ(producer.push(request), ring::Push::Done);
  }
  ring::Completion answer(std::size_t rank) {
    ring::Consumer<ring::Completion> consumer(keepers_[rank].completions());
    ring::Completion completion;
    EXPECT_EQ(consumer.pop(completion), ring::Pop::Done);
    return completion;
  }

  std::unique_ptr<HostDevice> device_ = HostDevice::create({}).value();
  std::unique_ptr<FlightRecorder> recorder_ = FlightRecorder::create(1024).value();
  Metrics metrics_;
  std::unique_ptr<Worker> worker_ =
      Worker::create({.device = device_->name(),
                      .open_backend = host_backend_on(*device_),
                      .recorder = *recorder_,
                      .metrics = metrics_,
                      .settings = std::make_shared<Settings>(),
                      .tuning = std::make_shared<TuningTable>(default_tuning()),
                      .events = {}})
          .value();
  ControlRequests requests_{*worker_};
  std::vector<ring::Segment> keepers_;
  std::vector<std::unique_ptr<SharedBytes>> memories_;
  std::vector<BufferId> buffers_;
  std::vector<MemberId> members_;
};

TEST_F(WorkerDeadlineTest, DoesNotStartWhatIsPastItsDeadlineAndSaysTimeout) {
  call(0, std::chrono::seconds(60));
  call(1, milliseconds(50));
  worker_->poll_sessions();
  ASSERT_EQ(worker_->state().pending(), 2u) << "both were in time";
  std::this_thread::sleep_for(milliseconds(60));  // somebody else's work, and no sweep
  EXPECT_TRUE(worker_->execute());
  for (const std::size_t rank : {0u, 1u}) {
    const ring::Completion completion = answer(rank);
    EXPECT_EQ(code_of(completion), ErrorCode::DeadlineExceeded);
    EXPECT_EQ(reason_of(completion), Reason::Timeout);
    EXPECT_EQ(memories_[rank]->as<float>(4096)[0], 0.0f) << "it ran";
  }
  EXPECT_FALSE(worker_->state().communicators.find(members_[0])->communicator->ready());
}

}  // namespace
}  // namespace arcomm::test

// A session's operations against a daemon that is this test: it holds the other ends of the rings.
#include "client/src/host/rings/submission.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/src/control/node_control.h"
#include "client/src/host/rings/waiting.h"
#include "client/src/host/segmentation.h"
#include "client/src/host/ticket_table.h"

namespace arcomm::client {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kSlots = 8;

// As a daemon's that answers the Hello, and hangs up with this.
class DescriptorSocket {
 public:
  DescriptorSocket() {
    char name[] = "/tmp/arcomm-submission-XXXXXX";
    folder_ = ::mkdtemp(name);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (folder_ + "/fd.sock").copy(address.sun_path, sizeof(address.sun_path) - 1);
    const UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    std::jthread daemon([&] {
      peer_ = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      FdMessage message;
      EXPECT_EQ(::recv(peer_.get(), &message, sizeof(message), 0),
                static_cast<ssize_t>(sizeof(message)));
      message = {};
      message.kind = FdMessageKind::Answer;
      EXPECT_GT(::send(peer_.get(), &message, sizeof(message), MSG_NOSIGNAL), 0);
    });
    channel_ =
        FdChannel::open(folder_ + "/fd.sock", {}, Deadline::after(milliseconds(5000))).value();
  }
  ~DescriptorSocket() { std::filesystem::remove_all(folder_); }

  FdChannel& channel() { return *channel_; }
  void hang_up() { peer_ = {}; }

 private:
  std::string folder_;
  UniqueFd peer_;
  std::unique_ptr<FdChannel> channel_;
};

class SubmissionTest : public testing::Test {
 protected:
  ~SubmissionTest() override {
    for (const auto& member : members_) submission_.remove(*member, left());
    for (Operation* operation : operations_) {
      if (operation->done.load()) tickets().recycle(*operation);
    }
  }
  static Error left() { return error(ErrorCode::Aborted, Reason::RemoteAborted, "left"); }

  ring::Segment opened() { return ring::Segment::open(UniqueFd(::dup(segment_.fd()))).value(); }
  std::shared_ptr<Member> joined() {
    auto member = std::make_shared<Member>();
    member->id = {static_cast<std::uint32_t>(members_.size() + 1), 1};
    submission_.add(*member);
    members_.push_back(member);
    return member;
  }
  // Of `requests` requests; nothing of it is staged.
  Operation& operation(const std::shared_ptr<Member>& member, std::uint64_t requests = 1) {
    Operation& made = *tickets().open();
    made.member = member;
    made.call = {all_reduce_of(requests * kSegmentGrainBytes / sizeof(float)), nullptr, nullptr};
    made.cut = cut(made.call.send_count, sizeof(float), kSegmentGrainBytes);
    made.deadline = Deadline::after(milliseconds(10'000));
    operations_.push_back(&made);
    return made;
  }
  Operation& submitted(const std::shared_ptr<Member>& member, std::uint64_t requests = 1) {
    Operation& made = operation(member, requests);
    EXPECT_TRUE(submission_.submit(made).ok());
    return made;
  }
  // What has left since the last call.
  std::vector<ring::WorkRequest> left_requests() {
    std::vector<ring::WorkRequest> requests;
    for (ring::WorkRequest request; requests_.pop(request) == ring::Pop::Done;)
      requests.push_back(request);
    return requests;
  }
  void complete(const ring::WorkRequest& request, ErrorCode code = ErrorCode::Ok) {
    ring::Completion completion;
    completion.ticket = request.ticket;
    completion.seq = request.seq;
    completion.code = static_cast<std::uint8_t>(code);
    completion.reason =
        static_cast<std::uint8_t>(code == ErrorCode::Ok ? Reason::None : Reason::RemoteDied);
    completion.stage = ring::Stage::Done;
    ASSERT_EQ(completions_.push(completion), ring::Push::Done);
    ring::FutexDoorbell(segment_.control().completions.consumer_sleeps).ring();
  }
  void work() {
    submission_.work([] { return false; });
  }

  ring::Segment segment_ = ring::Segment::create(kSlots, SessionId{1, 1}).value();
  ring::Consumer<ring::WorkRequest> requests_{segment_.requests()};
  ring::Producer<ring::Completion> completions_{segment_.completions()};
  DescriptorSocket socket_;
  NodeControl control_{"/nowhere"};
  SessionKey key_;
  StagingPool staging_{control_, socket_.channel(), key_};
  std::vector<MemberId> aborted_;
  DueAborts aborts_{[this](MemberId member, Deadline) {
    aborted_.push_back(member);
    return Status();
  }};
  Submission submission_{{.segment = opened(),
                          .doorbell = ring::EventDoorbell::create().value(),
                          .max_in_flight = 0,
                          .descriptors = socket_.channel(),
                          .staging = staging_,
                          .aborts = aborts_}};
  Waiting waiting_{submission_};
  std::vector<std::shared_ptr<Member>> members_;
  std::vector<Operation*> operations_;
};

TEST_F(SubmissionTest, RequestsLeaveInTheOrderOfTheCallsAndEndWithTheirCompletions) {
  const auto member = joined();
  Operation& first = submitted(member);
  Operation& second = submitted(member);
  const auto requests = left_requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].seq, 0u);
  EXPECT_EQ(requests[1].seq, 1u);
  complete(requests[1]);
  work();
  EXPECT_FALSE(first.done.load());
  EXPECT_TRUE(second.done.load());
  complete(requests[0]);
  work();
  EXPECT_TRUE(first.done.load());
  EXPECT_EQ(member->active.load(), 0u);
}

TEST_F(SubmissionTest, AMemberLeavesItsPeersTheirShareOfTheRing) {
  const auto first = joined(), second = joined();
  for (int i = 0; i < 6; ++i) submitted(first);
  const auto requests = left_requests();
  ASSERT_EQ(requests.size(), kSlots / 2);
  submitted(second);
  EXPECT_EQ(left_requests().size(), 1u);
  complete(requests[0]);
  work();
  const auto next = left_requests();
  ASSERT_EQ(next.size(), 1u) << "room for one more of the first";
  EXPECT_EQ(next[0].member, first->id.bits());
  EXPECT_EQ(next[0].seq, kSlots / 2);
}

TEST_F(SubmissionTest, ACompletionThatNobodyWaitsForAnyMoreEndsNothing) {
  const auto member = joined();
  submitted(member);
  const auto requests = left_requests();
  complete(requests[0]);
  work();
  Operation& next = submitted(member);  // in the same entry, of the next generation
  const auto again = left_requests();
  ASSERT_EQ(static_cast<std::uint32_t>(again[0].ticket),
            static_cast<std::uint32_t>(requests[0].ticket));
  complete(requests[0]);
  ring::WorkRequest wild = again[0];
  wild.ticket = kSlots;
  complete(wild);
  work();
  EXPECT_FALSE(next.done.load());
}

TEST_F(SubmissionTest, AnOperationThatFailsWholeLeavesItsMemberAsItWas) {
  const auto member = joined();
  Operation& failed = submitted(member);
  complete(left_requests()[0], ErrorCode::Aborted);
  work();
  ASSERT_TRUE(failed.done.load());
  EXPECT_EQ(failed.outcome.error.reason, Reason::RemoteDied);
  EXPECT_EQ(submission_.failure_of(*member).code, ErrorCode::Ok);
  EXPECT_TRUE(aborted_.empty());
}

TEST_F(SubmissionTest, AnOperationThatFailsPartWayTakesItsMemberAlongAndThePeersHearOfIt) {
  const auto member = joined();
  Operation& failed = submitted(member, 3);
  Operation& behind = operation(member);
  const auto requests = left_requests();
  ASSERT_EQ(requests.size(), 3u);
  complete(requests[0], ErrorCode::Aborted);
  work();
  EXPECT_FALSE(failed.done.load()) << "two of its requests are in flight";
  EXPECT_EQ(aborted_, std::vector<MemberId>{member->id});
  const Status refused = submission_.submit(behind);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, Reason::Revoked);
  complete(requests[1]);
  complete(requests[2]);
  work();
  ASSERT_TRUE(failed.done.load());
  EXPECT_EQ(failed.outcome.error.reason, Reason::RemoteDied);
}

TEST_F(SubmissionTest, ASessionThatIsShutOutEndsWhatIsInFlightAndWhatHasNotLeft) {
  const auto member = joined();
  std::vector<Operation*> open;
  for (std::uint32_t i = 0; i < kSlots + 2; ++i) open.push_back(&submitted(member, 2));
  segment_.control().session_reason.store(static_cast<std::uint32_t>(Reason::Corrupt));
  segment_.control().session_state.store(
      static_cast<std::uint32_t>(ring::SessionState::Quarantined));
  work();
  EXPECT_TRUE(submission_.lost());
  for (const Operation* operation : open) {
    ASSERT_TRUE(operation->done.load());
    EXPECT_EQ(operation->outcome.error.reason, Reason::Quarantined);
  }
  EXPECT_TRUE(aborted_.empty()) << "nobody is left to be told";
  EXPECT_EQ(submission_.submit(operation(member)).error().reason, Reason::Quarantined);
}

TEST_F(SubmissionTest, ADaemonThatHangsUpEndsEverythingButWhatItHadAnswered) {
  const auto member = joined();
  Operation& answered = submitted(member);
  Operation& open = submitted(member);
  complete(left_requests()[0]);
  socket_.hang_up();
  submission_.check();
  EXPECT_TRUE(submission_.lost());
  ASSERT_TRUE(answered.done.load() && open.done.load());
  EXPECT_FALSE(answered.failed());
  EXPECT_EQ(open.outcome.error.reason, Reason::DaemonLost);
}

TEST_F(SubmissionTest, WhoeverSleepsIsWokenByTheCompletionAndReapsForTheOthers) {
  const auto member = joined();
  Operation& first = submitted(member);
  Operation& second = submitted(member);
  const auto requests = left_requests();
  std::jthread other(
      [&] { EXPECT_TRUE(waiting_.wait_for(second, Deadline::after(milliseconds(10'000)))); });
  std::jthread daemon([&] {
    std::this_thread::sleep_for(milliseconds(30));  // past the spinning and the yielding
    for (const ring::WorkRequest& request : requests) complete(request);
  });
  EXPECT_TRUE(waiting_.wait_for(first, Deadline::after(milliseconds(10'000))));
}

// How often this thread has slept so far; a yield is not counted.
long sleeps_of_this_thread() {
  rusage used{};
  ::getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}

TEST_F(SubmissionTest, AWaitSleepsAtOnceWhileTheDaemonSharesItsCore) {
  const auto member = joined();
  Operation& operation = submitted(member);
  const auto half_of_the_yielding =
      Deadline(Deadline::Clock::now() + std::chrono::microseconds(150));
  segment_.control().core_is_shared.store(1);
  const long before = sleeps_of_this_thread();
  EXPECT_FALSE(waiting_.wait_for(operation, half_of_the_yielding));
  EXPECT_GT(sleeps_of_this_thread(), before);
  complete(left_requests()[0]);
  EXPECT_TRUE(waiting_.wait_for(operation, Deadline::after(milliseconds(10'000))));
}

TEST_F(SubmissionTest, AWaitThatSleepsAtOnceMissesNoCompletion) {
  const auto member = joined();
  segment_.control().core_is_shared.store(1);
  std::jthread daemon([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      for (const ring::WorkRequest& request : left_requests()) complete(request);
      std::this_thread::yield();
    }
  });
  const auto begin = Deadline::Clock::now();
  for (int i = 0; i < 500; ++i) {
    Operation& operation = submitted(member);
    ASSERT_TRUE(waiting_.wait_for(operation, Deadline::after(milliseconds(10'000)))) << i;
  }
  // Each that is missed costs a slice of 20 ms; so does a core that others keep, now and then.
  EXPECT_LT(Deadline::Clock::now() - begin, milliseconds(500 * 19));
}

TEST_F(SubmissionTest, AWaitEndsAtItsDeadlineAndWhatIsAbandonedEndsLater) {
  const auto member = joined();
  Operation& operation = submitted(member);
  EXPECT_FALSE(waiting_.wait_for(operation, Deadline::after(milliseconds(2))));
  tickets().spend(operation, operation.ticket.load());
  operations_.clear();  // its owner is the submission now
  submission_.abandon(operation);
  EXPECT_EQ(member->active.load(), 1u);
  EXPECT_EQ(submission_.failure_of(*member).reason, Reason::Revoked);
  complete(left_requests()[0]);
  work();
  EXPECT_EQ(member->active.load(), 0u);
}

}  // namespace
}  // namespace arcomm::client

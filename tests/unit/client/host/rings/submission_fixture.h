// A session's ends of its rings, and a daemon that is the test: it holds the others.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/src/control/node_control.h"
#include "client/src/host/rings/submission.h"
#include "client/src/host/rings/waiting.h"
#include "client/src/host/segmentation.h"
#include "client/src/host/ticket_table.h"

namespace arcomm::client {

using std::chrono::milliseconds;

inline constexpr std::uint32_t kSlots = 8;

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

  ring::Segment segment_ =
      ring::Segment::create(kSlots, SessionId{1, 1}, ring::kPlansInRing).value();
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

}  // namespace arcomm::client

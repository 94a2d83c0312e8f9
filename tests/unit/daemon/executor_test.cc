#include "daemon/exec/executor.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "daemon/exec/clock.h"
#include "transport/device/host_device.h"

namespace arcomm {
namespace {

class ExecutorTest : public ::testing::Test {
 protected:
  ExecutorTest() {
    members_ = table_.form({}, 1,
                           {Seat{.rank = 0, .session = {}, .member = {}},
                            Seat{.rank = 1, .session = {}, .member = {}}});
    executor_ =
        Executor::create(*device_, 1, table_, std::make_shared<TuningTable>(default_tuning()))
            .value();
  }
  void arrive(std::size_t rank, std::uint64_t deadline_ns) {
    Operation& operation = operations_[rank];
    operation.member = members_[rank];
    operation.rank = static_cast<Rank>(rank);
    operation.signature.count = operation.signature.total_count = 4;
    operation.send = reinterpret_cast<const std::byte*>(send_[rank].data());
    operation.recv = reinterpret_cast<std::byte*>(recv_[rank].data());
    operation.deadline_ns = deadline_ns;
    table_.arrive(operation);
  }
  std::vector<Operation*> ended() {
    std::vector<Operation*> list;
    while (Operation* operation = table_.finished().pop()) list.push_back(operation);
    return list;
  }

  CommunicatorTable table_{[](Communicator&) {}};
  std::unique_ptr<HostDevice> device_ = HostDevice::create({}).value();
  std::unique_ptr<Executor> executor_;
  std::vector<MemberId> members_;
  std::array<Operation, 2> operations_;
  std::array<std::array<float, 4>, 2> send_{{{1, 1, 1, 1}, {2, 2, 2, 2}}};
  std::array<std::array<float, 4>, 2> recv_{};
};

TEST_F(ExecutorTest, RunsWhatIsInTime) {
  for (const std::size_t rank : {0u, 1u}) arrive(rank, now_ns() + 60'000'000'000);
  EXPECT_TRUE(executor_->start_next());
  for (const Operation* operation : ended()) EXPECT_TRUE(operation->outcome.ok());
  EXPECT_EQ(recv_[0][0], 3.0f);
}

TEST_F(ExecutorTest, DoesNotStartWhatIsPastItsDeadlineAndSaysTimeout) {
  arrive(0, now_ns() + 60'000'000'000);
  arrive(1, now_ns() - 1);
  EXPECT_TRUE(executor_->start_next());
  const std::vector<Operation*> both = ended();
  ASSERT_EQ(both.size(), 2u);
  for (const Operation* operation : both) {
    EXPECT_EQ(operation->outcome.code, ErrorCode::DeadlineExceeded);
    EXPECT_EQ(operation->outcome.reason, Reason::Timeout);
  }
  EXPECT_EQ(recv_[0][0], 0.0f);
  EXPECT_TRUE(executor_->idle());
  EXPECT_FALSE(table_.find(members_[0])->communicator->ready());
}

}  // namespace
}  // namespace arcomm

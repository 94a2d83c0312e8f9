// Who waits for whose pages. Real memory, and a memory thread that is held until all have asked.
#include "daemon/control/descriptors/fair_prefault.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "daemon/control/descriptors/shared_memory.h"

namespace arcomm::test {
namespace {

constexpr std::uint64_t kSlice = 1 << 20;
constexpr std::uint64_t kManySlices = 64 * kSlice;
constexpr SessionId kFirst{1, 1}, kSecond{2, 1}, kThird{3, 1};

std::ptrdiff_t open_descriptors() {
  std::ptrdiff_t count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

class FairPrefaultTest : public ::testing::Test {
 protected:
  FairPrefaultTest() {
    loop_thread_ = std::thread([this] { loop_->run(); });
    thread_.post([gate = gate_.get_future().share()] { gate.wait(); });
  }
  ~FairPrefaultTest() override {
    let_go();
    thread_.stop();
    loop_->stop();
    loop_thread_.join();
  }
  void let_go() {
    if (!std::exchange(gone_, true)) gate_.set_value();
  }
  void on_loop(std::function<void()> task) {
    std::promise<void> done;
    loop_->post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
  // Notes `name` and what came of it when it has ended.
  void allocate(
      FairPrefault::Asker asker, std::uint64_t bytes, char name,
      const std::function<void()>& then = [] {}) {
    on_loop([=, this] {
      turns_.allocate(asker, bytes, [=, this](const Result<UniqueFd>& made) {
        order_ += name;
        ErrorCode code = made ? ErrorCode::Ok : made.error().code;
        if (made) {
          struct stat info {};
          EXPECT_EQ(::fstat(made->get(), &info), 0);
          EXPECT_EQ(static_cast<std::uint64_t>(info.st_size), bytes);
          EXPECT_EQ(static_cast<std::uint64_t>(info.st_blocks) * 512, bytes);
        }
        codes_ += code == ErrorCode::Ok ? '+' : '-';
        last_ = code;
        then();
      });
    });
  }
  // The names in the order in which they ended, once there are so many.
  std::string order(std::size_t many) {
    std::string seen;
    for (int i = 0; i < 4000 && seen.size() < many; ++i) {
      on_loop([&] { seen = order_; });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return seen;
  }
  static Error gone() { return error(ErrorCode::Cancelled, Reason::None, "gone"); }

  std::unique_ptr<EventLoop> loop_ = EventLoop::create().value();
  std::promise<void> gate_;
  bool gone_ = false;
  FdCloser closer_;
  TaskThread thread_;
  FairPrefault turns_{
      {.loop = *loop_, .thread = thread_, .closer = closer_, .slice_bytes = kSlice}};
  std::string order_, codes_;  // on the loop
  ErrorCode last_ = ErrorCode::Ok;
  std::thread loop_thread_;
};

TEST_F(FairPrefaultTest, AnotherSessionsGigabytesHoldUpNobody) {
  allocate({kFirst, 1}, kManySlices, 'A');
  allocate({kFirst, 2}, kManySlices, 'B');
  allocate({kSecond, 3}, kSlice, 'c');
  allocate({kSecond, 4}, 2 * kSlice, 'd');
  let_go();
  EXPECT_EQ(order(4), "cdAB");
  EXPECT_EQ(codes_, "++++");
}

TEST_F(FairPrefaultTest, ASessionsOwnRequestsTakeTurnsToo) {
  allocate({kFirst, 1}, kManySlices, 'A');
  allocate({kFirst, 2}, kSlice, 'b');
  let_go();
  EXPECT_EQ(order(2), "bA");
}

// A session with many requests has no more turns than one with few.
TEST_F(FairPrefaultTest, ManyRequestsOfOneSessionAreOneTurn) {
  for (char name = 'A'; name < 'M'; ++name) allocate({kFirst, 1}, 2 * kSlice, name);
  allocate({kSecond, 2}, 3 * kSlice, 'z');
  let_go();
  EXPECT_EQ(order(13).front(), 'z');
}

TEST_F(FairPrefaultTest, WhatIsCalledOffEndsAndItsPagesGo) {
  const std::ptrdiff_t descriptors = open_descriptors();
  allocate({kFirst, 1}, kManySlices, 'A');
  allocate({kFirst, 2}, kManySlices, 'B');
  allocate({kSecond, 3}, kManySlices, 'C');
  on_loop([&] { turns_.drop_call(2, gone()); });
  EXPECT_EQ(order(1), "B") << "nothing of it had begun";
  on_loop([&] {
    turns_.drop_call(1, gone());
    turns_.drop_session(kSecond, gone());
  });
  EXPECT_EQ(order(2), "BC");
  let_go();
  EXPECT_EQ(order(3), "BCA") << "after the slice that was under way";
  EXPECT_EQ(codes_, "---");
  EXPECT_EQ(last_, ErrorCode::Cancelled);
  for (int i = 0; i < 2000 && open_descriptors() > descriptors; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_LE(open_descriptors(), descriptors);
}

TEST_F(FairPrefaultTest, WhatOneHasBeenAllowedIsNotPromisedAgain) {
  // Each alone would fit; the second is looked at while the first has most of it still to touch.
  // Called off before either is touched.
  const std::uint64_t free_bytes = [] {
    std::uint64_t fits = 0;
    for (std::uint64_t step = std::uint64_t{1} << 50; step >= kSlice; step /= 2)
      if (check_available(fits + step)) fits += step;
    return fits;
  }();
  allocate({kFirst, 1}, free_bytes / 4 * 3 & ~(kSlice - 1), 'A');
  allocate({kSecond, 2}, free_bytes / 4 * 3 & ~(kSlice - 1), 'B');
  allocate({kThird, 3}, kSlice, 'c', [this] {
    turns_.drop_session(kFirst, gone());
    turns_.drop_session(kSecond, gone());
  });
  let_go();
  EXPECT_EQ(order(3), "BcA");
  EXPECT_EQ(codes_, "-+-");
}

TEST_F(FairPrefaultTest, WhatIsLeftWhenTheThreadStopsIsRefused) {
  allocate({kFirst, 1}, kManySlices, 'A');
  allocate({kSecond, 2}, kManySlices, 'B');
  std::thread stopper([this] { thread_.stop(); });
  // So that it has begun to stop, whatever is under way.
  while (thread_.post([] {})) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  let_go();
  stopper.join();
  EXPECT_EQ(order(2).size(), 2u);
  EXPECT_EQ(codes_, "--");
  EXPECT_EQ(last_, ErrorCode::Unavailable);
}

}  // namespace
}  // namespace arcomm::test

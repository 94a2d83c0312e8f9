// What flags between kernels and the CPU take: measured in turns of the worker, for as long as
// nobody needs the GPUs.
#include "daemon/exec/gpu/measure/flag_answers.h"
#include "daemon/exec/tune/flag_survey.h"
#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"

namespace arcomm::test {
namespace {

constexpr std::uint64_t kFar = ~std::uint64_t{0};

TEST(FlagAnswers, CountEveryAnswerBehindTheWarmUpUntilTheKernelEnds) {
  constexpr std::uint64_t kTimes = FlagAnswers::kWarmUp + 50;
  FlagEchoWords words;
  FakeFlagEcho kernel({.words = &words, .times = kTimes, .timeout_ns = kFar});
  FlagAnswers answers(kTimes);
  answers.answer(
      [&]() -> FlagEchoWords& {
        if (words.ended == 0) kernel.run();
        return words;
      },
      kFar);
  EXPECT_EQ(words.ended, static_cast<std::uint64_t>(FlagEchoEnd::Answered));
  const FlagEcho echo = answers.figures();
  EXPECT_EQ(echo.times, 50u);
  EXPECT_GT(echo.p50_ns, 0u);
  EXPECT_LE(echo.p50_ns, echo.p99_ns);
}

TEST(FlagAnswers, EndInTimeWhereNobodyAsksOrSomebodyAsksForEver) {
  FlagEchoWords words;
  FlagAnswers none(1);
  none.answer([&]() -> FlagEchoWords& { return words; }, now_ns() + 1'000'000);
  EXPECT_EQ(none.figures().times, 0u);
  FlagAnswers endless(1000);
  endless.answer(
      [&]() -> FlagEchoWords& {
        words.asked = words.answered + 1;
        return words;
      },
      now_ns() + 1'000'000);
  EXPECT_EQ(words.ended, 0u);
}

class GpuFlagMeasure : public GpuWorkerTest {
 protected:
  using Answer = Result<FlagEcho>;

  std::future<Answer> ask(std::uint32_t gpu) {
    auto answer = std::make_shared<std::promise<Answer>>();
    worker_->measure_flag(gpu, [answer](Answer echo) { answer->set_value(std::move(echo)); });
    return answer->get_future();
  }
  void expect_unavailable(const Answer& echo, const std::string& words) {
    ASSERT_FALSE(echo.ok());
    EXPECT_EQ(name_of(echo.error().code), name_of(ErrorCode::Unavailable));
    EXPECT_NE(echo.error().message.find(words), std::string::npos) << echo.error().message;
  }
};

TEST_F(GpuFlagMeasure, IsMeasuredOnEachGpuWhichServesAfterwards) {
  const auto flags = survey_flags(*worker_, 3, [] { return false; });
  ASSERT_TRUE(flags.ok()) << flags.error().to_string();
  ASSERT_EQ(flags->size(), 3u);
  for (const Answer& echo : *flags) {
    ASSERT_TRUE(echo.ok()) << echo.error().to_string();
    EXPECT_GT(echo->times, 0u);
    EXPECT_LE(echo->p50_ns, echo->p99_ns);
  }
  expect_serving(kLarge);
}

TEST_F(GpuFlagMeasure, SurveyEndsWhenItIsToldTo) {
  const auto flags = survey_flags(*worker_, 3, [] { return true; });
  ASSERT_FALSE(flags.ok());
  EXPECT_EQ(name_of(flags.error().code), name_of(ErrorCode::Cancelled));
}

TEST_F(GpuFlagMeasure, IsRefusedWhileACommunicatorExistsAndOfAGpuThatIsNotThere) {
  Answer none = ask(3).get();
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(name_of(none.error().code), name_of(ErrorCode::InvalidArgument));
  const auto ranks = group(2);
  Answer refused = ask(0).get();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(name_of(refused.error().code), name_of(ErrorCode::FailedPrecondition));
  EXPECT_NE(refused.error().message.find("arctl comms"), std::string::npos);
}

TEST_F(GpuFlagMeasure, KernelThatDoesNotBeginIsGivenUpAndIsInNobodysWayOnceItDoes) {
  node_.full = true;
  expect_unavailable(ask(1).get(), "GPU-1 has not come to the kernel");
  expect_unavailable(ask(1).get(), "try again");  // it is still there
  node_.full = false;
  EXPECT_TRUE(eventually([&] { return ask(1).get().ok(); }));
  expect_serving(kLarge);
}

TEST_F(GpuFlagMeasure, ClientWhoComesEndsItAndIsServed) {
  node_.full = true;
  auto waits = ask(0);
  auto second = ask(1);
  expect_unavailable(second.get(), "somebody else measures");
  std::thread client([this] { rank(0, 4096); });
  expect_unavailable(waits.get(), "somebody came");
  node_.full = false;
  client.join();
  EXPECT_TRUE(eventually([&] { return ask(0).get().ok(); }));
}

// The kernel waits for other work to end, which may take for ever.
TEST_F(GpuFlagMeasure, OneThatIsStuckIsInTheWayOfNoOtherGpuNorOfWhoNeedsMemory) {
  node_.full_gpu = 1;
  expect_unavailable(ask(1).get(), "GPU-1 has not come to the kernel");
  const Answer other = ask(0).get();
  EXPECT_TRUE(other.ok()) << other.error().to_string();
  expect_unavailable(ask(1).get(), "GPU-1 has not come to the kernel");
  expect_serving(kLarge);
  EXPECT_EQ(node_.echoes, 1);
  node_.full_gpu = -1;
  EXPECT_TRUE(eventually([&] { return node_.echoes == 0; }));
}

// Who asked for room was refused at once: a kernel of the daemon's was in the way.
TEST_F(GpuFlagMeasure, EndsForWhoeverNeedsTheRoomOfWhatWasReleased) {
  GpuRank& one = rank(2, 4096);
  const int before = node_.memories;
  auto measured = ask(0);
  worker_->remove_buffer(one.client->id(), one.buffer, [](const Result<void>&) {});
  const Result<void> gone =
      await<void>([&](auto done) { worker_->let_go_of_released(0, 0, done); });
  EXPECT_TRUE(gone.ok()) << gone.error().to_string();
  EXPECT_EQ(node_.memories, before - 1);
  measured.wait();
}

TEST_F(GpuFlagMeasure, DrainingTellsItToEnd) {
  node_.full = true;
  auto waits = ask(0);
  expect_unavailable(ask(1).get(), "somebody else measures");  // the first has begun
  worker_->drain(std::chrono::seconds(60), [](const Result<void>&) {});
  const Answer echo = waits.get();
  ASSERT_FALSE(echo.ok());
  EXPECT_EQ(name_of(echo.error().reason), name_of(Reason::ShuttingDown));
  node_.full = false;
  EXPECT_TRUE(eventually([&] { return node_.echoes == 0; }));
  EXPECT_EQ(node_.echo_ended, static_cast<std::uint64_t>(FlagEchoEnd::Stopped));
}

TEST_F(GpuFlagMeasure, EndsWithTheWorker) {
  node_.full = true;
  auto waits = ask(0);
  expect_unavailable(ask(1).get(), "somebody else measures");  // the first has begun
  worker_->stop();
  Answer echo = waits.get();
  ASSERT_FALSE(echo.ok());
  EXPECT_EQ(name_of(echo.error().reason), name_of(Reason::ShuttingDown));
  node_.full = false;
}

}  // namespace
}  // namespace arcomm::test

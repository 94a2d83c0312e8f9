// The log under its contract: nothing an output does holds a caller up, and what is lost is
// counted.
#include "daemon/telemetry/log/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "daemon/telemetry/log/log_line.h"
#include "proto/unique_fd.h"
#include "tests/unit/daemon/telemetry/temporary_folder.h"

namespace arcomm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

std::int64_t ms_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
}

// Standard error replaced for as long as this lives.
class StandardError {
 public:
  explicit StandardError(int fd) : saved_(::dup(STDERR_FILENO)) { ::dup2(fd, STDERR_FILENO); }
  ~StandardError() { ::dup2(saved_.get(), STDERR_FILENO); }

 private:
  UniqueFd saved_;
};

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override { dropped_before_ = log::dropped_lines(); }
  void TearDown() override { log::stop(); }
  std::uint64_t dropped() const { return log::dropped_lines() - dropped_before_; }
  Status start(LogFormat format = LogFormat::Text) {
    return log::start({.level = LogLevel::Info, .format = format, .file = path_});
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("log");
  std::uint64_t dropped_before_ = 0;
};

TEST_F(LogTest, WritesTextLinesWithTimeAndLevel) {
  ASSERT_TRUE(start());
  log::info("session {} attached", 7);
  log::error("no memory");
  ASSERT_TRUE(log::flush(2000));
  EXPECT_THAT(file_text(path_), MatchesRegex("[0-9]{4}-[0-9-]+T[0-9:.]+Z info  session 7 attached\n"
                                             "[0-9]{4}-[0-9-]+T[0-9:.]+Z error no memory\n"));
  EXPECT_EQ(dropped(), 0u);
}

TEST_F(LogTest, WritesOneJsonObjectALine) {
  ASSERT_TRUE(start(LogFormat::Json));
  log::warn("a \"quoted\"\nthing");
  log::audit("attach refused", {{"uid", "1000"}, {"process", "ev\"il\n"}});
  ASSERT_TRUE(log::flush(2000));
  const std::string text = file_text(path_);
  EXPECT_THAT(text,
              HasSubstr("\"level\":\"warn\",\"message\":\"a \\\"quoted\\\"\\u000athing\"}\n"));
  EXPECT_THAT(text, HasSubstr("\"level\":\"audit\",\"event\":\"attach refused\",\"uid\":\"1000\","
                              "\"process\":\"ev\\\"il\\u000a\"}\n"));
}

TEST_F(LogTest, QuotesAuditFieldsThatCouldForgeOthers) {
  ASSERT_TRUE(start());
  log::audit("attach refused", {{"uid", "1000"}, {"process", "x uid=0"}});
  ASSERT_TRUE(log::flush(2000));
  EXPECT_THAT(file_text(path_), HasSubstr("audit attach refused uid=1000 process=\"x uid=0\"\n"));
}

TEST_F(LogTest, ChangesLevelAndFormatWhileRunning) {
  ASSERT_TRUE(start());
  log::debug("hidden");
  log::set_level(LogLevel::Debug);
  log::debug("shown");
  log::set_level(LogLevel::Error);
  log::warn("hidden too");
  log::audit("always", {});
  log::set_format(LogFormat::Json);
  log::error("as json");
  ASSERT_TRUE(log::flush(2000));
  const std::string text = file_text(path_);
  EXPECT_THAT(text, Not(HasSubstr("hidden")));
  EXPECT_THAT(text, AllOf(HasSubstr("debug shown"), HasSubstr("audit always"),
                          HasSubstr("\"message\":\"as json\"")));
}

TEST_F(LogTest, CutsLinesToWhatAPipeTakesAtOnce) {
  ASSERT_TRUE(start(LogFormat::Json));
  log::info("{}", std::string(100'000, '\n'));
  ASSERT_TRUE(log::flush(2000));
  const std::string text = file_text(path_);
  EXPECT_LE(text.size(), kMaxLogLineBytes);
  EXPECT_THAT(text, HasSubstr("...\"}\n"));
}

TEST_F(LogTest, OneUsersFloodHidesNoLineOfAnotherAndIsToldOf) {
  ASSERT_TRUE(start());
  const std::uint64_t left_out = log::left_out_lines();
  for (int i = 0; i < 10'000; ++i) {
    log::info_of(log::About::Calls, 1000, "call {} failed", i);
    log::audit_of(1000, "connection refused", {{"uid", "1000"}});
  }
  log::info_of(log::About::Calls, 1001, "another's call failed");
  log::audit_of(1001, "connection refused", {{"uid", "1001"}});
  log::info_of(log::About::Sessions, 1000, "of another kind");
  ASSERT_TRUE(log::flush(2000));
  const std::string text = file_text(path_);
  EXPECT_LT(text.size(), 20'000u);
  EXPECT_THAT(text,
              AllOf(HasSubstr("another's call failed"),
                    HasSubstr("audit connection refused uid=1001"), HasSubstr("of another kind")));
  EXPECT_GT(log::left_out_lines(), left_out + 19'000);
  EXPECT_EQ(dropped(), 0u) << "what is left out is not what the output could not take";
  // By itself, though nobody logs anything more.
  const auto since = Clock::now();
  while (file_text(path_).find("lines left out") == std::string::npos && ms_since(since) < 10'000)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_THAT(file_text(path_), AllOf(HasSubstr("more failed calls of uid 1000 were not logged"),
                                      HasSubstr("audit lines left out uid=1000 lines=99")));
}

TEST_F(LogTest, GoesOnInANewFileAfterRotation) {
  ASSERT_TRUE(start());
  log::info("first");
  ASSERT_TRUE(log::flush(2000));
  ASSERT_EQ(::rename(path_.c_str(), folder_.file("log.1").c_str()), 0);
  ASSERT_TRUE(log::reopen());
  log::info("second");
  ASSERT_TRUE(log::flush(2000));
  EXPECT_THAT(file_text(folder_.file("log.1")),
              AllOf(HasSubstr("first"), Not(HasSubstr("second"))));
  EXPECT_THAT(file_text(path_), HasSubstr("second"));
}

TEST_F(LogTest, SaysWhyAFileCannotBeOpened) {
  const Status status = log::start({.file = folder_.file("none/log")});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::NotFound);
  EXPECT_THAT(status.error().message, AllOf(HasSubstr("none/log"), HasSubstr("log.file")));
}

TEST_F(LogTest, TellsAFileThatCannotBeOpenedNowFromAWrongName) {
  const std::string fifo = folder_.file("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const Status later = log::start({.file = fifo});  // once it has a reader
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().code, ErrorCode::Unavailable);
  const Status never = log::start({.file = folder_.file("")});
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().code, ErrorCode::InvalidArgument);
}

TEST_F(LogTest, DropsAndCountsOnAFullDiskAndRecovers) {
  ASSERT_TRUE(log::start({.file = "/dev/full"}));
  for (int i = 0; i < 10; ++i) log::info("line {}", i);
  ASSERT_TRUE(log::flush(2000));
  EXPECT_EQ(dropped(), 10u);
  ASSERT_TRUE(start());
  log::info("room again");
  ASSERT_TRUE(log::flush(2000));
  EXPECT_THAT(file_text(path_),
              AllOf(HasSubstr("room again"), HasSubstr("10 log lines were dropped")));
}

TEST_F(LogTest, NeverWaitsForAReaderThatDoesNotRead) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  {
    const StandardError full(writer.get());
    ASSERT_TRUE(log::start({.queue_lines = 256}));
    const auto begin = Clock::now();
    for (int i = 0; i < 20'000; ++i) log::info("{} {}", i, std::string(100, 'x'));
    EXPECT_LT(ms_since(begin), 5000);
    EXPECT_GT(dropped(), 10'000u);
    const auto stop = Clock::now();
    log::stop();
    EXPECT_LT(ms_since(stop), 1500);
  }
}

TEST_F(LogTest, KeepsRoomForAuditLinesInAFlood) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  std::string text;
  {
    const StandardError full(writer.get());
    ASSERT_TRUE(log::start({.queue_lines = 256}));
    for (int i = 0; i < 5000; ++i) log::info("{} {}", i, std::string(100, 'x'));
    log::audit("attach refused", {{"uid", "4711"}});
    for (int i = 0; i < 5000; ++i) log::info("{} {}", i, std::string(100, 'x'));
    // The reader comes back: all that was kept arrives, the audit line with it.
    const auto end = Clock::now() + std::chrono::seconds(5);
    while (Clock::now() < end && text.find("uid=4711") == std::string::npos) {
      pollfd ready{.fd = reader.get(), .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 100) <= 0) continue;
      char piece[4096];
      const ssize_t got = ::read(reader.get(), piece, sizeof(piece));
      if (got > 0) text.append(piece, static_cast<std::size_t>(got));
    }
    log::stop();
  }
  EXPECT_THAT(text, HasSubstr("attach refused uid=4711"));
}

TEST_F(LogTest, SurvivesAReaderThatIsGone) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  const StandardError broken(writer.get());
  reader.reset();
  ASSERT_TRUE(log::start({}));
  log::info("into the void");  // SIGPIPE would end this process
  ASSERT_TRUE(log::flush(2000));
  EXPECT_EQ(dropped(), 1u);
  log::stop();
}

TEST_F(LogTest, SurvivesAStandardErrorThatIsClosed) {
  const UniqueFd saved(::dup(STDERR_FILENO));
  ::close(STDERR_FILENO);
  const Status started = log::start({});
  log::warn("nobody hears");
  const bool is_flushed = log::flush(2000);
  log::stop();
  ::dup2(saved.get(), STDERR_FILENO);
  EXPECT_TRUE(started);
  EXPECT_TRUE(is_flushed);
  EXPECT_EQ(dropped(), 1u);
}

TEST_F(LogTest, MarksPrioritiesForTheJournalAndLeavesTheTimeToIt) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  struct stat status {};
  ASSERT_EQ(::fstat(writer.get(), &status), 0);
  const std::string stream = std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
  {
    const StandardError journal(writer.get());
    ::setenv("JOURNAL_STREAM", stream.c_str(), 1);
    ASSERT_TRUE(log::start({}));
    ::unsetenv("JOURNAL_STREAM");
    log::error("broken");
    log::info("fine");
    log::audit("attach", {{"uid", "0"}});
    ASSERT_TRUE(log::flush(2000));
    log::stop();
  }
  char text[512] = {};
  ASSERT_GT(::recv(reader.get(), text, sizeof(text) - 1, MSG_DONTWAIT), 0);
  EXPECT_STREQ(text, "<3>error broken\n<6>info  fine\n<5>audit attach uid=0\n");
}

TEST_F(LogTest, TakesLinesFromManyThreadsWhole) {
  ASSERT_TRUE(log::start({.file = path_, .queue_lines = 100'000}));
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i) log::info("thread {} line {}", t, i);
    });
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(log::flush(5000));
  const std::string text = file_text(path_);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2000);
  EXPECT_THAT(text, HasSubstr("thread 3 line 499\n"));
  EXPECT_EQ(dropped(), 0u);
}

TEST_F(LogTest, CountsLinesThatNobodyIsThereToWrite) {
  log::info("before any start");
  log::audit("likewise", {});
  EXPECT_EQ(dropped(), 2u);
}

}  // namespace
}  // namespace arcomm

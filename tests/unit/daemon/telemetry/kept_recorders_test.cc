#include "daemon/telemetry/kept_recorders.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/unit/daemon/telemetry/notify_listener.h"
#include "tests/unit/daemon/telemetry/temporary_folder.h"

namespace arcomm {
namespace {

UniqueFd copy_of(int fd) {
  return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

TEST(KeptRecorders, ShowsWhatTheDaemonBeforeDidAndPassesOnTheRest) {
  const std::unique_ptr<FlightRecorder> dead = FlightRecorder::create(8).value();
  FlightRecord record{.seq = 7};
  dead->write(record);
  std::vector<InheritedSocket> passed;
  passed.push_back({.fd = copy_of(dead->memfd()), .name = "recorder0", .path = {}});
  passed.push_back({.fd = {}, .name = "client", .path = "/run/client.sock"});
  ServiceManager nobody;
  KeptRecorders kept(nobody);
  kept.take_previous(passed);
  ASSERT_EQ(kept.previous().operations.size(), 1U);
  EXPECT_EQ(kept.previous().operations.front().seq, 7U);
  ASSERT_EQ(passed.size(), 1U);
  EXPECT_EQ(passed.front().name, "client");
}

TEST(KeptRecorders, DropsOneThatItCannotRead) {
  const TemporaryFolder folder;
  const NotifyListener systemd(folder.file("notify"));
  ServiceManager manager = ServiceManager::from_environment();
  std::vector<InheritedSocket> passed;
  passed.push_back(
      {.fd = UniqueFd(::open("/dev/null", O_RDONLY)), .name = "recorder1", .path = {}});
  KeptRecorders kept(manager);
  kept.take_previous(passed);
  EXPECT_TRUE(passed.empty());
  EXPECT_TRUE(kept.previous().operations.empty());
  EXPECT_EQ(systemd.heard(), "FDSTOREREMOVE=1\nFDNAME=recorder1");
}

TEST(KeptRecorders, PutsItsOwnInThePlaceOfTheDeadOnes) {
  const TemporaryFolder folder;
  const NotifyListener systemd(folder.file("notify"));
  ServiceManager manager = ServiceManager::from_environment();
  const std::unique_ptr<FlightRecorder> recorder = FlightRecorder::create(8).value();
  KeptRecorders(manager).keep(0, *recorder);
  EXPECT_EQ(systemd.heard(), "FDSTOREREMOVE=1\nFDNAME=recorder0");
  UniqueFd stored;
  EXPECT_EQ(systemd.heard(&stored), "FDSTORE=1\nFDNAME=recorder0");
  EXPECT_TRUE(FlightRecorder::read(stored.get()));
}

}  // namespace
}  // namespace arcomm

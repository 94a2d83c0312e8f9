// The settings of other daemons: what each may hold, and what they may not hold together.
#include <gmock/gmock.h>

#include "config/settings_table.h"

namespace arcomm {
namespace {

using testing::HasSubstr;

bool accepts(std::string_view name, std::string_view value) {
  Settings settings;
  return !apply_setting_text(*find_setting(name), value, settings);
}

TEST(NetworkSettings, TakeAListOfPeersByNameAndAddress) {
  EXPECT_TRUE(accepts("net.peers", ""));
  EXPECT_TRUE(accepts("net.peers", "10.0.0.1:7400"));
  EXPECT_TRUE(accepts("net.peers", "10.0.0.1:7400, node-b.example:7400,[fd00::2]:7400"));
}

TEST(NetworkSettings, RefuseAPeerWithoutAPortTwiceOrMisspelled) {
  EXPECT_FALSE(accepts("net.peers", " "));
  EXPECT_FALSE(accepts("net.peers", "10.0.0.1"));
  EXPECT_FALSE(accepts("net.peers", "10.0.0.1:0"));
  EXPECT_FALSE(accepts("net.peers", "10.0.0.1:7400,"));
  EXPECT_FALSE(accepts("net.peers", "10.0.0.1:7400,10.0.0.1:7400"));
  EXPECT_FALSE(accepts("net.peers", "fd00::2:7400"));
  EXPECT_FALSE(accepts("net.peers", "[10.0.0.1]:7400"));
  EXPECT_FALSE(accepts("net.peers", "node b:7400"));
}

TEST(NetworkSettings, AreListenedForOnAnAddressAndNoSocket) {
  EXPECT_TRUE(accepts("net.listen", "[::]:7400"));
  EXPECT_TRUE(accepts("net.listen", "127.0.0.2:0"));
  EXPECT_FALSE(accepts("net.listen", "unix:/run/arcommd/peer.sock"));
  EXPECT_FALSE(accepts("net.listen", "node-b:7400"));
}

TEST(NetworkSettings, NameInterfacesByNamePatternAndNetwork) {
  EXPECT_TRUE(accepts("net.interfaces", "eth0, ib*, 10.0.0.0/8, fd00::/8"));
  EXPECT_TRUE(accepts("net.interfaces", ""));
  EXPECT_FALSE(accepts("net.interfaces", "10.0.0.0/33"));
  EXPECT_FALSE(accepts("net.interfaces", "10.0.0/8"));
  EXPECT_FALSE(accepts("net.interfaces", "an_interface_of_more_than_15"));
  EXPECT_FALSE(accepts("net.interfaces", "eth0,,eth1"));
}

TEST(NetworkSettings, NameCpusByRanges) {
  EXPECT_TRUE(accepts("net.cpus", "4-7,12"));
  EXPECT_FALSE(accepts("net.cpus", "7-4"));
  EXPECT_FALSE(accepts("net.cpus", "4-"));
  EXPECT_FALSE(accepts("net.cpus", "1024"));
  EXPECT_FALSE(accepts("net.cpus", "all"));
}

TEST(NetworkSettings, AllowNoPeersWithoutATokenOrTls) {
  Settings settings;
  settings.net.peers = "10.0.0.1:7400";
  ASSERT_TRUE(find_conflict(settings));
  EXPECT_EQ(find_conflict(settings)->name, "net.token_file");
  EXPECT_THAT(find_conflict(settings)->message, HasSubstr("0600"));
  settings.net.token_file = "/etc/arcommd/token";
  EXPECT_FALSE(find_conflict(settings));
  settings.net.token_file.clear();
  settings.net.tls_cert = settings.net.tls_key = settings.net.tls_ca = "/etc/arcommd/pem";
  EXPECT_FALSE(find_conflict(settings));
  settings.net = {};
  settings.net.listen = "[::]:7400";
  EXPECT_TRUE(find_conflict(settings));
}

TEST(NetworkSettings, TakeTlsWholeOrNotAtAll) {
  Settings settings;
  settings.net.tls_cert = "/etc/arcommd/cert.pem";
  ASSERT_TRUE(find_conflict(settings));
  EXPECT_EQ(find_conflict(settings)->name, "net.tls_key");
  settings.net.tls_key = "/etc/arcommd/key.pem";
  EXPECT_EQ(find_conflict(settings)->name, "net.tls_ca");
}

}  // namespace
}  // namespace arcomm

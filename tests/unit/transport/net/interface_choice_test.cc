#include "transport/net/addresses/interface_choice.h"

#include <gmock/gmock.h>

#include <map>

#include "transport/net/tcp/socket.h"

namespace arcomm::net {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Interface interface(std::string name, std::string host, unsigned bits = 24) {
  return {.name = std::move(name),
          .host = std::move(host),
          .prefix_bits = bits,
          .is_up = true,
          .is_running = true};
}

class InterfaceChoiceTest : public testing::Test {
 protected:
  InterfaceChoiceTest() {
    all_ = {interface("lo", "127.0.0.1", 8),
            interface("eth0", "10.0.0.2"),
            interface("eth0", "fe80::2%eth0", 64),
            interface("eth0", "fd00::2", 64),
            interface("ib0", "10.1.0.2"),
            interface("ib1", "10.2.0.2"),
            interface("wlan0", "")};
    all_[0].is_loopback = true;
  }
  Result<std::string> source(const std::string& peer) const {
    const auto found = routes_.find(peer);
    if (found != routes_.end()) return found->second;
    return error(ErrorCode::Unavailable, Reason::None, "no route to ", peer);
  }
  std::vector<InterfaceChoice> choose(const InterfaceWishes& wishes) {
    auto choices = choose_interfaces(
        all_, wishes, [this](const std::string& peer, const std::string&) { return source(peer); });
    EXPECT_TRUE(choices.ok()) << choices.error().message;
    return choices ? *std::move(choices) : std::vector<InterfaceChoice>();
  }
  std::vector<std::string> chosen(const InterfaceWishes& wishes) {
    std::vector<std::string> hosts;
    for (const auto& choice : choose(wishes))
      if (choice.is_chosen) hosts.push_back(choice.interface.host);
    return hosts;
  }
  std::string why(const InterfaceWishes& wishes, const std::string& host) {
    for (const auto& choice : choose(wishes))
      if (choice.interface.host == host) return choice.why;
    return "it is not listed";
  }

  std::vector<Interface> all_;
  std::map<std::string, std::string> routes_{
      {"10.0.0.3", "10.0.0.2"}, {"10.1.0.3", "10.1.0.2"}, {"fd00::3", "fd00::2"}};
};

TEST_F(InterfaceChoiceTest, WithoutAListThoseThatRouteToThePeersAreTaken) {
  const InterfaceWishes wishes{.peers = {"10.0.0.3", "10.1.0.3"}};
  EXPECT_THAT(chosen(wishes), ElementsAre("10.0.0.2", "10.1.0.2"));
  EXPECT_EQ(why(wishes, "10.1.0.2"), "it routes to 10.1.0.3");
  EXPECT_EQ(why(wishes, "10.2.0.2"), "no peer is reached over it");
}

TEST_F(InterfaceChoiceTest, APeerThatIsNotReachedDoesNotKeepOthersFromBeingReached) {
  EXPECT_THAT(chosen({.peers = {"192.0.2.9", "10.1.0.3"}}), ElementsAre("10.1.0.2"));
}

TEST_F(InterfaceChoiceTest, NamesPatternsNetworksAndAddressesChoose) {
  const std::vector<std::string> peers{"10.0.0.3"};
  EXPECT_THAT(chosen({.list = "eth0", .peers = peers}), ElementsAre("10.0.0.2"));
  EXPECT_THAT(chosen({.list = "ib*", .peers = peers}), ElementsAre("10.1.0.2", "10.2.0.2"));
  EXPECT_THAT(chosen({.list = "ib?, eth9", .peers = peers}), ElementsAre("10.1.0.2", "10.2.0.2"));
  EXPECT_THAT(chosen({.list = "10.2.0.0/16,eth0", .peers = peers}),
              ElementsAre("10.0.0.2", "10.2.0.2"));
  EXPECT_THAT(chosen({.list = "10.1.0.2", .peers = peers}), ElementsAre("10.1.0.2"));
  EXPECT_EQ(why({.list = "10.2.0.0/16", .peers = peers}, "10.2.0.2"),
            "net.interfaces names it: 10.2.0.0/16");
  EXPECT_EQ(why({.list = "ib*", .peers = peers}, "10.0.0.2"), "net.interfaces does not name it");
}

TEST_F(InterfaceChoiceTest, AnInterfaceCarriesDataByOneAddressOfThePeersFamily) {
  const InterfaceWishes v4{.list = "eth0", .peers = {"10.0.0.3"}};
  EXPECT_THAT(chosen(v4), ElementsAre("10.0.0.2"));
  EXPECT_EQ(why(v4, "fd00::2"), "no peer has an IPv6 address");
  const InterfaceWishes v6{.list = "eth0", .peers = {"fd00::3"}};
  EXPECT_THAT(chosen(v6), ElementsAre("fd00::2")) << "and not the link-local one";
  EXPECT_EQ(why(v6, "fe80::2%eth0"), "eth0 is used by its address fd00::2");
  EXPECT_THAT(chosen({.list = "fe80::/10", .peers = {"fd00::3"}}), ElementsAre("fe80::2%eth0"));
}

TEST_F(InterfaceChoiceTest, WhatIsDownOrHasNoCarrierOrAddressSaysSo) {
  all_[4].is_up = false;
  all_[5].is_running = false;
  const InterfaceWishes wishes{.list = "eth0, ib*, wlan0", .peers = {"10.0.0.3"}};
  EXPECT_THAT(chosen(wishes), ElementsAre("10.0.0.2"));
  EXPECT_EQ(why(wishes, "10.1.0.2"), "it is down");
  EXPECT_EQ(why(wishes, "10.2.0.2"), "it has no carrier");
  EXPECT_EQ(why(wishes, ""), "it has no IP address");
}

TEST_F(InterfaceChoiceTest, SeveralDaemonsOfOneMachineAreToldApartByTheirLoopbackAddresses) {
  routes_["127.0.0.3"] = "127.0.0.2";
  const std::vector<std::string> peers{"127.0.0.2", "127.0.0.3"};
  EXPECT_THAT(chosen({.peers = peers, .own_host = "127.0.0.2"}), ElementsAre("127.0.0.2"));
  EXPECT_THAT(chosen({.list = "lo", .peers = peers, .own_host = "127.0.0.2"}),
              ElementsAre("127.0.0.2"));
  EXPECT_THAT(chosen({.list = "127.0.0.9", .peers = peers}), ElementsAre("127.0.0.9"));
}

TEST_F(InterfaceChoiceTest, WithoutPeersWhatIsUpOrListenedOnIsTaken) {
  EXPECT_THAT(chosen({}), ElementsAre("10.0.0.2", "10.1.0.2", "10.2.0.2"));
  EXPECT_EQ(why({}, "127.0.0.1"), "no other node is reached over it");
  EXPECT_THAT(chosen({.own_host = "10.1.0.2"}), ElementsAre("10.1.0.2"));
  EXPECT_THAT(chosen({.peers = {"127.0.0.5"}, .own_host = "127.0.0.5"}), ElementsAre("127.0.0.5"));
}

TEST_F(InterfaceChoiceTest, WhenNothingIsLeftTheErrorSaysWhatSpeaksAgainstEach) {
  const auto none = choose_interfaces(
      all_, {.list = "wlan*", .peers = {"10.0.0.3"}},
      [](const std::string&, const std::string&) { return Result<std::string>(std::string()); });
  EXPECT_EQ(none.error().code, ErrorCode::FailedPrecondition);
  EXPECT_THAT(none.error().message, HasSubstr("wlan0 (): it has no IP address"));
  EXPECT_THAT(none.error().message, HasSubstr("ib1 (10.2.0.2): net.interfaces does not name it"));
  const auto unreachable = choose_interfaces(
      all_, {.peers = {"192.0.2.9"}},
      [this](const std::string& peer, const std::string&) { return source(peer); });
  EXPECT_THAT(unreachable.error().message, HasSubstr("no route to 192.0.2.9"));
  const auto malformed = choose_interfaces(all_, {.list = "10.0.0.0/40"}, source_towards);
  EXPECT_EQ(malformed.error().code, ErrorCode::InvalidArgument);
  EXPECT_THAT(malformed.error().message, HasSubstr("10.0.0.0/40"));
}

TEST(Interfaces, TheLoopbackOfThisMachineIsListedAndRoutesToItself) {
  const auto all = interfaces_of_machine().value();
  const auto found = std::ranges::find(all, "127.0.0.1", &Interface::host);
  ASSERT_NE(found, all.end());
  EXPECT_TRUE(found->is_loopback && found->is_up && found->is_running);
  EXPECT_EQ(found->prefix_bits, 8u);
  EXPECT_EQ(found->speed_mbits, 0u);
  EXPECT_EQ(source_towards("127.0.0.7", "").value(), "127.0.0.1");
  EXPECT_EQ(source_towards("127.0.0.7", "127.0.0.3").value(), "127.0.0.3");
  const auto choices = choose_interfaces({.peers = {"127.0.0.7"}, .own_host = "127.0.0.3"}).value();
  EXPECT_EQ(std::ranges::count_if(choices, &InterfaceChoice::is_chosen), 1);
  const auto chosen = std::ranges::find_if(choices, &InterfaceChoice::is_chosen);
  EXPECT_EQ(chosen->interface.host, "127.0.0.3");
  EXPECT_EQ(chosen->why, "it routes to 127.0.0.7");
}

}  // namespace
}  // namespace arcomm::net

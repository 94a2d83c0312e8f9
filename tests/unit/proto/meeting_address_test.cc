#include "proto/meeting_address.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>

namespace arcomm::test {
namespace {

using Id = std::array<std::byte, 128>;

TEST(MeetingAddress, IsReadAsItWasWritten) {
  for (const std::string address :
       {"10.0.0.1:7400", "[fe80::1%eth0]:7400", "node-1.example.org:7400", ":1"}) {
    Id id{};
    write_meeting_address(id, address);
    EXPECT_EQ(meeting_address(id), address);
    EXPECT_EQ(id[63], std::byte{0}) << "the first half stays random";
  }
  Id longest{};
  const std::string address = std::string(kMostMeetingAddressBytes - 2, 'a') + ":1";
  write_meeting_address(longest, address);
  EXPECT_EQ(meeting_address(longest), address);
}

TEST(MeetingAddress, WhatIsNoAddressLeavesTheIdAsItWas) {
  for (const std::string& address :
       {std::string(), std::string("nowhere"), std::string("a b:1"), std::string("a:1\n"),
        std::string("a\0b:1", 5), std::string(kMostMeetingAddressBytes, 'a') + ":1"}) {
    Id id{};
    write_meeting_address(id, address);
    EXPECT_EQ(id, Id{}) << address;
    EXPECT_EQ(meeting_address(id), "");
  }
}

TEST(MeetingAddress, AStrangersBytesNeverLeaveTheIdNorCarryWhatIsNoAddress) {
  std::mt19937 random(7);
  for (int turn = 0; turn < 20000; ++turn) {
    Id id;
    for (std::byte& byte : id) byte = static_cast<std::byte>(random());
    std::memcpy(id.data() + 64, "ARCNODE1", 8);
    if (turn % 2 == 0) {
      for (std::size_t i = 73; i < id.size(); ++i)
        id[i] = static_cast<std::byte>("a1:.["[random() % 5]);
    }
    const std::string_view address = meeting_address(id);
    EXPECT_LE(address.size(), kMostMeetingAddressBytes);
    for (const char c : address) EXPECT_TRUE(c > ' ' && c < 127);
  }
}

}  // namespace
}  // namespace arcomm::test

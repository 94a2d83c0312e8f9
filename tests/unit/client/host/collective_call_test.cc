#include "client/src/host/collective_call.h"

#include <gtest/gtest.h>

#include <array>

namespace arcomm::client {
namespace {

alignas(16) std::array<float, 64> floats;

void expect_refused(const Status& status, const char* says) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::InvalidArgument);
  EXPECT_NE(status.error().message.find(says), std::string::npos) << status.error().message;
}

TEST(CallCheck, AcceptsInPlaceAndNeighbours) {
  EXPECT_TRUE(check_call(floats.data(), floats.data(), 64, 2, 0, nullptr).ok());
  EXPECT_TRUE(check_call(floats.data(), floats.data() + 32, 32, 2, 4, nullptr).ok());
}

TEST(CallCheck, AcceptsNullPointersForNoElements) {
  EXPECT_TRUE(check_call(nullptr, nullptr, 0, 9, 0, nullptr).ok());
}

TEST(CallCheck, RefusesNullPointers) {
  expect_refused(check_call(nullptr, floats.data(), 1, 2, 0, nullptr), "send is null");
  expect_refused(check_call(floats.data(), nullptr, 1, 2, 0, nullptr), "recv is null");
}

TEST(CallCheck, RefusesUnknownTypesAndOperations) {
  expect_refused(check_call(floats.data(), floats.data(), 1, -1, 0, nullptr), "dtype is -1");
  expect_refused(check_call(floats.data(), floats.data(), 1, 10, 0, nullptr), "dtype is 10");
  expect_refused(check_call(floats.data(), floats.data(), 1, 2, 5, nullptr), "op is 5");
  expect_refused(check_call(floats.data(), floats.data(), 1, 2, -3, nullptr), "op is -3");
}

TEST(CallCheck, RefusesOverlapThatIsNotInPlace) {
  expect_refused(check_call(floats.data(), floats.data() + 1, 8, 2, 0, nullptr), "overlap");
  expect_refused(check_call(floats.data() + 7, floats.data(), 8, 2, 0, nullptr), "overlap");
}

TEST(CallCheck, RefusesPointersOffTheElement) {
  const auto* bytes = reinterpret_cast<const char*>(floats.data());
  expect_refused(check_call(bytes + 2, floats.data() + 32, 1, 2, 0, nullptr), "aligned");
  EXPECT_TRUE(check_call(bytes + 2, floats.data() + 32, 1, 0, 0, nullptr).ok());  // float16
}

TEST(CallCheck, RefusesAStreamOnTheHost) {
  int stream = 0;
  expect_refused(check_call(floats.data(), floats.data(), 1, 2, 0, &stream), "NULL");
}

TEST(CallCheck, RefusesCountsBeyondMemory) {
  expect_refused(check_call(floats.data(), floats.data(), UINT64_MAX / 2, 2, 0, nullptr), "count");
  expect_refused(
      check_call(reinterpret_cast<void*>(UINTPTR_MAX - 7), floats.data(), 64, 2, 0, nullptr),
      "send");
}

}  // namespace
}  // namespace arcomm::client

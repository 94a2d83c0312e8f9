#include "proto/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "proto/types.h"

namespace arcomm {
namespace {

TEST(Status, EveryErrorCodeHasAnOwnNameAndText) {
  std::set<std::string_view> names, texts;
  for (unsigned number = 0; number <= 16; ++number) {
    const ErrorCode code = error_code_from(number);
    EXPECT_EQ(static_cast<unsigned>(code), number);
    EXPECT_TRUE(names.insert(name_of(code)).second) << name_of(code);
    EXPECT_TRUE(texts.insert(text_of(code)).second) << text_of(code);
  }
  EXPECT_EQ(names.count("UnknownCode"), 0u);
}

TEST(Status, CodesAreTheCanonicalNumbersOfGrpc) {
  EXPECT_EQ(static_cast<int>(ErrorCode::InvalidArgument), 3);
  EXPECT_EQ(static_cast<int>(ErrorCode::DeadlineExceeded), 4);
  EXPECT_EQ(static_cast<int>(ErrorCode::Aborted), 10);
  EXPECT_EQ(static_cast<int>(ErrorCode::Unavailable), 14);
  EXPECT_EQ(static_cast<int>(ErrorCode::Unauthenticated), 16);
}

TEST(Status, EveryReasonHasAnOwnNameAndText) {
  std::set<std::string_view> names, texts;
  for (unsigned number = 0; number <= 22; ++number) {
    const Reason reason = reason_from(number);
    EXPECT_EQ(static_cast<unsigned>(reason), number);
    EXPECT_TRUE(names.insert(name_of(reason)).second) << name_of(reason);
    EXPECT_TRUE(texts.insert(text_of(reason)).second) << text_of(reason);
  }
}

TEST(Status, NumbersFromElsewhereThatMeanNothingHereStayHarmless) {
  EXPECT_EQ(error_code_from(17), ErrorCode::Unknown);
  EXPECT_EQ(error_code_from(~0u), ErrorCode::Unknown);
  EXPECT_EQ(reason_from(200), Reason::None);
  EXPECT_EQ(name_of(static_cast<ErrorCode>(200)), "UnknownCode");
  EXPECT_EQ(name_of(static_cast<Reason>(200)), "UnknownReason");
}

TEST(Status, AnErrorReadsAsCodeReasonAndMessage) {
  const Error failure =
      error(ErrorCode::NotFound, Reason::UnknownHandle, "buffer ", 7, " of ", "rank ", 2);
  EXPECT_EQ(failure.to_string(), "NotFound (UnknownHandle): buffer 7 of rank 2");
  EXPECT_EQ((Error{ErrorCode::Internal, Reason::None, "", -1}.to_string()), "Internal");
}

TEST(Result, HoldsAValueOrAnError) {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(3));
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(**good, 3);
  const std::unique_ptr<int> taken = std::move(good).value();
  EXPECT_EQ(*taken, 3);
  const Result<int> bad(error(ErrorCode::Aborted, Reason::Revoked, "gone"));
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().reason, Reason::Revoked);
}

TEST(Result, ReturnIfErrorPassesTheFirstFailureOn) {
  const auto fails_at = [](int step) -> Status {
    ARC_RETURN_IF_ERROR(step == 1 ? Status(error(ErrorCode::Internal, Reason::Bug, "one"))
                                  : Status());
    ARC_RETURN_IF_ERROR(step == 2 ? Status(error(ErrorCode::Internal, Reason::Bug, "two"))
                                  : Status());
    return {};
  };
  EXPECT_TRUE(fails_at(0).ok());
  EXPECT_EQ(fails_at(1).error().message, "one");
  EXPECT_EQ(fails_at(2).error().message, "two");
}

TEST(Types, SizesAndNamesFollowTheTable) {
  EXPECT_EQ(size_of(DType::Float16), 2u);
  EXPECT_EQ(size_of(DType::BFloat16), 2u);
  EXPECT_EQ(size_of(DType::Uint64), 8u);
  EXPECT_EQ(size_of(static_cast<DType>(99)), 0u);
  EXPECT_EQ(text_of(DType::BFloat16), "bfloat16");
  EXPECT_EQ(text_of(ReduceOp::Avg), "avg");
}

TEST(Types, AnIdSurvivesItsBitsAndZeroIsNeverValid) {
  const BufferId id{0x01020304, 0xa0b0c0d0};
  EXPECT_EQ(BufferId::from_bits(id.bits()), id);
  EXPECT_EQ(id.bits(), 0xa0b0c0d0'01020304u);
  EXPECT_TRUE(id.valid());
  EXPECT_FALSE(BufferId::from_bits(0).valid());
  EXPECT_FALSE(BufferId::from_bits(0xffffffff).valid());  // generation 0
}

}  // namespace
}  // namespace arcomm

// What a process asks for by its environment.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "client/src/host/in_call/in_call_path.h"

namespace arcomm::client {
namespace {

class InCallBytesAsked : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv("ARCOMM_IN_CALL_BYTES"); }
  Result<std::uint64_t> with(const char* value) {
    ::setenv("ARCOMM_IN_CALL_BYTES", value, 1);
    return most_in_call_bytes_asked();
  }
};

TEST_F(InCallBytesAsked, AreTheDaemonsChoiceWhereNothingIsSet) {
  EXPECT_EQ(most_in_call_bytes_asked().value(), 0u);
  EXPECT_EQ(with("").value(), 0u);
}

TEST_F(InCallBytesAsked, AreWhatIsSet) {
  EXPECT_EQ(with("1").value(), 1u);
  EXPECT_EQ(with("65536").value(), 65536u);
}

TEST_F(InCallBytesAsked, AreRefusedByNameWhereTheyCannotBe) {
  for (const char* value : {"0", "65537", "-1", "16K", "1 ", "99999999999999999999"}) {
    const Result<std::uint64_t> asked = with(value);
    ASSERT_FALSE(asked.ok()) << value;
    EXPECT_EQ(asked.error().code, ErrorCode::InvalidArgument);
    EXPECT_NE(asked.error().message.find("ARCOMM_IN_CALL_BYTES is \"" + std::string(value)),
              std::string::npos)
        << asked.error().message;
  }
}

}  // namespace
}  // namespace arcomm::client

// What clients call themselves and say to each other, whatever bytes it has: the operator sees all
// of them. Fault matrix 49.
#include "proto/text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

class StrangeText : public NodeTest {
 protected:
  // As `arctl sessions` shows them; it must show them, in both of its ways.
  std::vector<std::string> shown_names() {
    const ArctlRun table = arctl(node(), {"sessions"});
    EXPECT_EQ(table.code, 0) << table.errors;
    EXPECT_TRUE(is_plain(table.output)) << table.output;
    const nlohmann::json shown = arctl_json(node(), {"sessions"});
    std::vector<std::string> names;
    for (const auto& session : shown.value("sessions", nlohmann::json::array()))
      names.push_back(session.value("process_name", "?"));
    return names;
  }
  // Valid UTF-8, and nothing but line ends moves the cursor.
  static bool is_plain(std::string_view text) {
    while (!text.empty()) {
      const CodePoint character = first_code_point(text);
      if (character.bytes == 0 || (is_unprintable(character.value) && character.value != '\n'))
        return false;
      text.remove_prefix(character.bytes);
    }
    return true;
  }
};

TEST_F(StrangeText, EverySessionIsShownWhateverItIsCalled) {  // 49
  start();
  const std::vector<std::pair<std::string, std::string>> names = {
      {"trainer", "trainer"},
      {"Größe 模型", "Größe 模型"},
      {"cut \xe2\x82", "cut \\xe2\\x82"},
      {"\xff\xfe", "\\xff\\xfe"},
      {"a\nlevel=error\x1b[2J", "a\\x0alevel=error\\x1b[2J"},
      {"x\xe2\x80\xaegpj", "x\\u202egpj"},
      {std::string("nul\0byte", 8), "nul\\x00byte"},
      {std::string(62, 'a') + "€€", std::string(61, 'a') + "..."},
      {"€€€€€€€€€€€€€€€€€€€€€€", "€€€€€€€€€€€€€€€€€€€€..."},
      {"", ""}};
  std::vector<std::unique_ptr<RawSession>> sessions;
  std::vector<std::string> expected;
  for (const auto& [name, shown] : names) {
    RawSession::Options options;
    options.process_name = name;
    Result<std::unique_ptr<RawSession>> attached = RawSession::attach(node(), options);
    ASSERT_TRUE(attached) << shown << ": " << attached.error().message;
    sessions.push_back(std::move(*attached));
    expected.push_back(shown);
  }
  std::vector<std::string> shown = shown_names();
  std::ranges::sort(shown);
  std::ranges::sort(expected);
  EXPECT_EQ(shown, expected);
  EXPECT_TRUE(is_plain(node().log()));
  EXPECT_EQ(arctl(node(), {"status"}).code, 0);
}

TEST_F(StrangeText, AProcessAttachesWhateverItsFileIsCalled) {  // 49
  start();
  ClientProcess::Options options;
  options.environment = node().environment();
  options.prefix = {"/bin/bash", "-c", "exec -a \"$0\" \"$@\"",
                    "Gr\xf6\xdf"
                    "e"};  // Latin-1
  const auto client = ClientProcess::start(options);
  const Reply attached = client->ask("init");
  EXPECT_TRUE(attached.ok()) << attached.to_string();
  EXPECT_EQ(shown_names(), std::vector<std::string>{"Gr\\xf6\\xdf"
                                                    "e"});
}

TEST_F(StrangeText, ADeviceOfNoTextIsRefusedByItsName) {  // 49
  start();
  RawSession::Options options;
  options.device = "host\xff\n";
  const auto refused = RawSession::attach(node(), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::NotFound);
  EXPECT_NE(refused.error().message.find("no device \"host\\xff\\x0a\" here; there is host:0"),
            std::string::npos)
      << refused.error().message;
}

TEST_F(StrangeText, AnAbortsReasonReachesThePeersWhateverItsBytesAre) {  // 49
  start();
  std::string euros;
  while (euros.size() < 300) euros += "€";
  for (const std::string& why : {std::string("\xff\n"), euros, "a" + euros, "aa" + euros}) {
    const auto peer = ClientProcess::start(node());
    peer->expect_ok("init");
    auto session = RawSession::attach(node());
    ASSERT_TRUE(session) << session.error().message;
    const Result<MemberId> member = (*session)->create_communicator_with(*peer);
    ASSERT_TRUE(member) << member.error().message;
    peer->tell("allreduce c0 1024 float32 sum");
    wait_in_flight(1);
    const Status aborted = (*session)->abort(*member, why);
    ASSERT_TRUE(aborted) << aborted.error().message;
    const Reply told = peer->hear();
    EXPECT_EQ(told.code, arcAborted) << told.to_string();
    EXPECT_NE(told.message.find("rank 0 aborted the communicator: "), std::string::npos)
        << told.message;
    EXPECT_TRUE(is_plain(told.message)) << told.message;
    const ArctlRun comms = arctl(node(), {"comms"});
    EXPECT_EQ(comms.code, 0) << comms.errors;
    EXPECT_TRUE(is_plain(comms.output)) << comms.output;
  }
  EXPECT_TRUE(is_plain(node().log()));
}

TEST_F(StrangeText, KilobytesOfRepeatedFieldsAreRefusedWithWords) {  // 49
  start();
  RawSession::Options options;
  options.process_name = "fat";
  const auto session = RawSession::attach(node(), options);
  ASSERT_TRUE(session) << session.error().message;
  // An empty text is two bytes of the message, a short number one.
  using Fill = Status (RawSession::*)(std::size_t);
  for (const Fill fill : {Fill{&RawSession::join_with_gpus}, Fill{&RawSession::register_pieces},
                          Fill{&RawSession::release_offers}}) {
    for (const std::size_t fields : {1'100u, 10'000u, 65'536u}) {
      const Status refused = ((*session).get()->*fill)(fields);
      ASSERT_FALSE(refused) << fields;
      EXPECT_EQ(refused.error().code, ErrorCode::ResourceExhausted) << refused.error().to_string();
      EXPECT_FALSE(refused.error().message.empty());
    }
    ASSERT_TRUE(node().running());
    EXPECT_EQ(shown_names(), std::vector<std::string>{"fat"});
  }
  const Status few = (*session)->join_with_gpus(65);
  ASSERT_FALSE(few);
  EXPECT_NE(few.error().message.find("number of visible_gpus has 65, and 64 is the most"),
            std::string::npos)
      << few.error().message;
  EXPECT_TRUE(is_plain(node().log()));
  EXPECT_TRUE((*session)->create_lone_communicator()) << "it is served on";
}

TEST_F(StrangeText, TheStatusIsShownWhateverTheEnvironmentHolds) {  // 49
  DaemonProcess::Options options;
  options.environment = {"ARCOMM_\xff\n=1"};
  start(options);
  const nlohmann::json status = arctl_json(node(), {"status"});
  std::string warnings;
  for (const auto& warning : status["warnings"]) warnings += warning.get<std::string>() + "; ";
  EXPECT_NE(warnings.find("ARCOMM_\\xff\\x0a is no setting"), std::string::npos) << warnings;
}

}  // namespace
}  // namespace arcomm::support

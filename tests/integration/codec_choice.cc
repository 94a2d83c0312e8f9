// How an operation comes by its codec: by its own config, by its communicator's default, or by an
// error class; through every call that takes one.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "tests/integration/golden_result.h"
#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

constexpr std::size_t kCount = 1003;
const std::string kWhat = " c0 1003 float32 sum";

std::string named(Codec codec) {
  return " codec=" + std::to_string(static_cast<int>(codec));
}

class CodecChoice : public NodeTest {
 protected:
  // Ranks whose communicator was formed with these options.
  Clients ranks_with(const std::string& options) {
    Clients clients;
    for (int rank = 0; rank < 2; ++rank) {
      clients.push_back(ClientProcess::start(node()));
      clients.back()->expect_ok("init 5000");
    }
    form(clients, options);
    return clients;
  }
  static void form(const Clients& clients, const std::string& options) {
    const std::string id = clients[0]->expect_ok("id");
    for (int rank = 0; rank < 2; ++rank)
      clients[rank]->tell("comm c0 2 " + id + " " + std::to_string(rank) + options);
    for (const auto& client : clients) {
      const Reply reply = client->hear();
      EXPECT_TRUE(reply.ok()) << options << ": " << reply.to_string();
    }
  }
  static void expect_result(const Clients& clients, const std::string& line, Codec codec) {
    const std::string want = golden_result("float32", "sum", kCount, 2, codec);
    for (const Reply& reply : ask_all(clients, line)) {
      EXPECT_TRUE(reply.ok()) << line << ": " << reply.to_string();
      EXPECT_EQ(reply.value, want) << line << " is not " << text_of(codec);
    }
  }
  void expect_refused(const Clients& clients, const std::string& line, const std::string& text) {
    for (const Reply& reply : ask_all(clients, line)) {
      EXPECT_EQ(reply.code, arcInvalidArgument) << line << ": " << reply.to_string();
      EXPECT_NE(reply.message.find(text), std::string::npos) << reply.to_string();
    }
  }
  std::string comms() { return arctl(node(), {"comms"}).output; }
  nlohmann::json communicator() { return arctl_json(node(), {"comms"})["communicators"][0]; }
};

TEST_F(CodecChoice, ATicketsOperationGetsTheGoldenCodecsBits) {
  start();
  const Clients clients = start_ranks(node(), 2);
  for (const Codec codec : {Codec::Fp8, Codec::Q6Rotated}) {
    expect_all_ok(clients, "async one" + kWhat + named(codec));
    expect_result(clients, "wait one", codec);
  }
}

TEST_F(CodecChoice, EveryStartOfAPlanGetsTheGoldenCodecsBits) {
  start();
  const Clients clients = start_ranks(node(), 2);
  for (const std::string memory : {"", " mem=alloc"}) {
    expect_all_ok(clients, "plan p" + kWhat + named(Codec::Q4) + memory);
    expect_result(clients, "planrun p 1", Codec::Q4);
    expect_result(clients, "planrun p 1", Codec::Q4);
    expect_all_ok(clients, "plandestroy p");
  }
  EXPECT_EQ(scrape().value("arcomm_coded_operations_total", {"q4"}), 8);
}

TEST_F(CodecChoice, RanksWhosePlansNameDifferentCodecsAreToldBoth) {
  start();
  const Clients clients = start_ranks(node(), 2);
  clients[0]->expect_ok("plan p" + kWhat + named(Codec::Q4) + " mem=alloc");
  clients[1]->expect_ok("plan p" + kWhat + named(Codec::Q6) + " mem=alloc");
  for (const Reply& reply : ask_all(clients, "planrun p 1")) {
    EXPECT_EQ(reply.reason, arcReasonMismatch) << reply.to_string();
    EXPECT_NE(reply.message.find("q4"), std::string::npos) << reply.to_string();
    EXPECT_NE(reply.message.find("q6"), std::string::npos) << reply.to_string();
  }
  expect_all_ok(clients, "plandestroy p");
}

TEST_F(CodecChoice, ACommunicatorsDefaultIsForCallsThatSayNothingAndIsShown) {
  start();
  const Clients clients = ranks_with(named(Codec::Q8));
  expect_result(clients, "allreduce" + kWhat, Codec::Q8);
  expect_result(clients, "allreduce" + kWhat + named(Codec::Q4), Codec::Q4);
  expect_result(clients, "allreduce" + kWhat + named(Codec::None), Codec::None);
  expect_all_ok(clients, "async one" + kWhat);
  expect_result(clients, "wait one", Codec::Q8);
  expect_all_ok(clients, "plan p" + kWhat + " mem=alloc");
  expect_result(clients, "planrun p 1", Codec::Q8);
  expect_all_ok(clients, "plandestroy p");
  EXPECT_NE(comms().find("default codec: q8: q8 at every size, as asked"), std::string::npos)
      << comms();
  EXPECT_EQ(communicator()["default_codec"], "q8");
  expect_all_ok(clients, "rebuild c0");
  expect_result(clients, "allreduce" + kWhat, Codec::Q8);
}

TEST_F(CodecChoice, WithoutADefaultArctlCommsSaysNone) {
  start();
  const Clients clients = start_ranks(node(), 2);
  EXPECT_EQ(communicator()["default_codec"], "none");
  EXPECT_EQ(comms().find("default codec"), std::string::npos) << comms();
}

TEST_F(CodecChoice, WhatADefaultCodecDoesNotServeIsRefusedByItsName) {
  start();
  const Clients clients = ranks_with(named(Codec::Q6));
  expect_refused(clients, "allreduce c0 64 int32 sum",
                 "codec q6, the communicator's default, does not serve sum of int32");
  expect_refused(clients, "async one c0 64 float32 max", "does not serve max of float32");
  expect_all_ok(clients, "allreduce c0 64 int32 sum" + named(Codec::None));
}

TEST_F(CodecChoice, RanksThatDisagreeAboutTheirDefaultAreToldBoth) {
  start();
  const auto one = ClientProcess::start(node()), other = ClientProcess::start(node());
  for (const auto* defaults : {" codec=3", " snr=30", ""}) {
    one->ask("init 3000");
    other->ask("init 3000");
    const std::string id = one->expect_ok("id");
    one->tell("comm c0 2 " + id + " 0 codec=2");
    other->tell("comm c0 2 " + id + " 1" + defaults);
    const std::string second = *defaults == '\0'                    ? "none"
                               : std::string(defaults) == " snr=30" ? "at least 30 dB"
                                                                    : "q6";
    for (const Reply& reply : {one->hear(), other->hear()}) {
      EXPECT_EQ(reply.reason, arcReasonMismatch) << reply.to_string();
      EXPECT_NE(reply.message.find("default codec"), std::string::npos) << reply.to_string();
      EXPECT_NE(reply.message.find("q8"), std::string::npos) << reply.to_string();
      EXPECT_NE(reply.message.find(second), std::string::npos) << reply.to_string();
      EXPECT_LT(reply.took, kPrompt);
    }
  }
}

// On one host no codec saves time, so that a class comes to none: told by all that can tell.
TEST_F(CodecChoice, AnErrorClassComesToNoCodecOnOneHostAndSaysWhy) {
  start();
  const Clients clients = start_ranks(node(), 2);
  expect_result(clients, "allreduce" + kWhat + " snr=20", Codec::None);
  expect_result(clients, "allreduce" + kWhat + " error=0.2", Codec::None);
  expect_all_ok(clients, "async one" + kWhat + " snr=20 error=0.01");
  expect_result(clients, "wait one", Codec::None);
  expect_all_ok(clients, "plan p" + kWhat + " snr=20 mem=alloc");
  expect_result(clients, "planrun p 1", Codec::None);
  expect_all_ok(clients, "plandestroy p");
  expect_all_ok(clients, "async plain" + kWhat);
  expect_all_ok(clients, "wait plain");

  const nlohmann::json records = arctl_json(node(), {"trace"})["records"];
  ASSERT_EQ(records.size(), 10u);
  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i]["codec"], "none");
    EXPECT_EQ(records[i]["of_error_class"], i < 8) << i;
  }
  const std::string text = arctl(node(), {"trace"}).output;
  EXPECT_NE(text.find("sum float32 class:none"), std::string::npos) << text;
  EXPECT_EQ(scrape().value("arcomm_error_class_operations_total", {"none"}), 8);
  EXPECT_EQ(scrape().value("arcomm_coded_operations_total", {"q4"}), 0);
}

TEST_F(CodecChoice, AnErrorClassServesWhatNoCodecServes) {
  start();
  const Clients clients = ranks_with(" snr=30");
  expect_all_ok(clients, "allreduce c0 64 int32 sum");
  expect_all_ok(clients, "allreduce c0 64 float32 max");
}

TEST_F(CodecChoice, ADefaultErrorClassIsShownWithWhatBecomesOfItAndWhy) {
  start();
  const Clients clients = ranks_with(" snr=30 error=0.05");
  expect_result(clients, "allreduce" + kWhat, Codec::None);
  const std::string text = comms();
  EXPECT_NE(text.find("default codec: at least 30 dB and at most 0.05 of a block's largest: none "
                      "at any size: nothing travels between ranks of one host"),
            std::string::npos)
      << text;
  EXPECT_EQ(communicator()["default_codec"],
            "at least 30 dB and at most 0.05 of a block's largest");
}

TEST_F(CodecChoice, ARankWithAnErrorClassAndOneWithoutAreToldSo) {
  start();
  const Clients clients = start_ranks(node(), 2);
  clients[0]->tell("allreduce" + kWhat + " snr=20");
  clients[1]->tell("allreduce" + kWhat);
  for (const auto& client : clients) {
    const Reply reply = client->hear();
    EXPECT_EQ(reply.reason, arcReasonMismatch) << reply.to_string();
    EXPECT_NE(reply.message.find("an error class"), std::string::npos) << reply.to_string();
  }
}

TEST_F(CodecChoice, AWishThatMakesNoSenseIsRefused) {
  start();
  const Clients clients = start_ranks(node(), 2);
  expect_refused(clients, "allreduce" + kWhat + " codec=2 snr=20", "give one of the two");
  expect_refused(clients, "allreduce" + kWhat + " snr=-1", "least_snr_db -1");
  expect_refused(clients, "allreduce" + kWhat + " error=nan", "greatest relative error");
  expect_refused(clients, "plan p" + kWhat + " codec=9", "codec is 9");
}

TEST_F(CodecChoice, ArctlExplainsWhatAClassAndANameComeTo) {
  start();
  const nlohmann::json of_class =
      arctl_json(node(), {"tune", "--explain", "16M", "--least-snr", "30"});
  EXPECT_EQ(of_class["codec"], "none");
  EXPECT_NE(of_class["codec_why"].get<std::string>().find("nothing travels"), std::string::npos);
  const nlohmann::json of_name = arctl_json(node(), {"tune", "--explain", "16M", "--codec", "q6"});
  EXPECT_EQ(of_name["codec"], "q6");
  const std::string text =
      arctl(node(), {"tune", "--explain", "16M", "--codec", "q6", "--dtype", "bfloat16"}).output;
  EXPECT_NE(text.find("q6 at every size, as asked"), std::string::npos) << text;
  EXPECT_NE(text.find("q4_rotated"), std::string::npos) << "the bounds: " << text;
  const nlohmann::json refused =
      arctl_json(node(), {"tune", "--explain", "1K", "--codec", "q6", "--dtype", "int32"});
  EXPECT_EQ(refused["codec"], "none");
  EXPECT_NE(refused["codec_why"].get<std::string>().find("refused"), std::string::npos);
  EXPECT_EQ(arctl_json(node(), {"tune", "--explain", "1K"})["codec_why"], "");
}

}  // namespace
}  // namespace arcomm::support

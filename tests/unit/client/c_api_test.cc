// What the C ABI says without a daemon: arguments, handles, texts.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

#include "client/include/arclient.h"
#include "client/src/c_api/entry_point.h"

namespace {

arcErrorInfo_t last() {
  arcErrorInfo_t info{};
  info.struct_size = sizeof(info);
  EXPECT_EQ(arcGetLastErrorInfo(&info), arcSuccess);
  return info;
}

arcComm_t invented_comm() {
  return reinterpret_cast<arcComm_t>(0x1234567800000018);
}

TEST(CApi, SaysItsVersion) {
  int version = 0;
  EXPECT_EQ(arcGetVersion(&version), arcSuccess);
  EXPECT_EQ(version, ARC_VERSION_CODE);
  EXPECT_EQ(arcGetVersion(nullptr), arcInvalidArgument);
}

TEST(CApi, HasATextForEveryNumber) {
  EXPECT_STREQ(arcGetErrorString(arcSuccess), "success");
  EXPECT_STREQ(arcGetErrorString(arcInProgress), "in progress");
  EXPECT_STREQ(arcGetReasonString(arcReasonMismatch), "the ranks asked for different operations");
  for (int i = -2; i < 300; ++i) {
    EXPECT_NE(arcGetErrorString(static_cast<arcResult_t>(i)), nullptr);
    EXPECT_NE(arcGetReasonString(static_cast<arcReason_t>(i)), nullptr);
  }
}

TEST(CApi, MakesDifferentUniqueIds) {
  arcUniqueId a, b;
  ASSERT_EQ(arcGetUniqueId(&a), arcSuccess);
  ASSERT_EQ(arcGetUniqueId(&b), arcSuccess);
  EXPECT_NE(std::string(a.internal, sizeof(a)), std::string(b.internal, sizeof(b)));
}

TEST(CApi, RefusesAConfigOfAnAllReduceThatWasNotInitialised) {
  float value = 0;
  arcAllReduceConfig_t config{};
  EXPECT_EQ(arcAllReduceWith(&value, &value, 1, arcFloat32, arcSum, &config, nullptr, nullptr),
            arcInvalidArgument);
  EXPECT_NE(std::string(arcGetLastError(nullptr)).find("ARC_ALL_REDUCE_CONFIG_INITIALIZER"),
            std::string::npos);
  config.struct_size = SIZE_MAX;
  EXPECT_EQ(arcAllReduceWith(&value, &value, 1, arcFloat32, arcSum, &config, nullptr, nullptr),
            arcInvalidArgument);
  // A newer caller's is longer; none at all is as arcAllReduce.
  struct {
    arcAllReduceConfig_t known = ARC_ALL_REDUCE_CONFIG_INITIALIZER;
    std::uint64_t newer[8] = {};
  } longer;
  longer.known.struct_size = sizeof(longer);
  for (const arcAllReduceConfig_t* sound :
       {&longer.known, static_cast<arcAllReduceConfig_t*>(nullptr)}) {
    EXPECT_EQ(
        arcAllReduceWith(&value, &value, 1, arcFloat32, arcSum, sound, invented_comm(), nullptr),
        arcNotFound);
  }
}

TEST(CApi, RefusesAnOptionOfANewerCallerThatItWouldLose) {
  float value = 0;
  struct {
    arcAllReduceConfig_t known = ARC_ALL_REDUCE_CONFIG_INITIALIZER;
    std::uint64_t newer[8] = {};
  } longer;
  longer.known.struct_size = sizeof(longer);
  longer.newer[7] = 1;
  arcErrorInfo_t info{};
  info.struct_size = sizeof(info);
  EXPECT_EQ(arcAllReduceWith(&value, &value, 1, arcFloat32, arcSum, &longer.known, invented_comm(),
                             nullptr),
            arcInvalidArgument);
  ASSERT_EQ(arcGetLastErrorInfo(&info), arcSuccess);
  EXPECT_EQ(info.reason, arcReasonVersion);
  longer.newer[7] = 0;
  longer.known.reserved = 1;
  EXPECT_EQ(arcAllReduceWith(&value, &value, 1, arcFloat32, arcSum, &longer.known, invented_comm(),
                             nullptr),
            arcInvalidArgument);
}

TEST(CApi, TakesAConfigOfAnOlderCallerForOneWithoutAnErrorClass) {
  float value = 0;
  arcAllReduceConfig_t config = ARC_ALL_REDUCE_CONFIG_INITIALIZER;
  config.least_snr_db = -1;  // memory behind what the caller has
  config.struct_size = offsetof(arcAllReduceConfig_t, least_snr_db);
  EXPECT_EQ(
      arcAllReduceWith(&value, &value, 1, arcFloat32, arcSum, &config, invented_comm(), nullptr),
      arcNotFound);
  config.struct_size = sizeof(config);
  EXPECT_EQ(
      arcAllReduceWith(&value, &value, 1, arcFloat32, arcSum, &config, invented_comm(), nullptr),
      arcInvalidArgument);
}

TEST(CApi, EveryCallThatTakesAConfigJudgesItAlike) {
  float value = 0;
  arcAllReduceConfig_t config = ARC_ALL_REDUCE_CONFIG_INITIALIZER;
  config.codec = arcCodecQ8;
  config.most_relative_error = 0.1;  // one of the two
  arcTicket_t ticket = 0;
  arcPlan_t plan = nullptr;
  arcComm_t comm = nullptr;
  arcCodec_t codec = arcCodecNone;
  arcUniqueId id;
  ASSERT_EQ(arcGetUniqueId(&id), arcSuccess);
  arcCommConfig_t of_communicator = ARC_COMM_CONFIG_INITIALIZER;
  of_communicator.all_reduce = &config;
  const auto expect_refused = [](arcResult_t result) {
    EXPECT_EQ(result, arcInvalidArgument);
    EXPECT_NE(std::string(arcGetLastError(nullptr)).find("give one of the two"), std::string::npos)
        << arcGetLastError(nullptr);
  };
  expect_refused(
      arcAllReduceWith(&value, &value, 1, arcFloat32, arcSum, &config, invented_comm(), nullptr));
  expect_refused(arcAllReduceAsyncWith(&value, &value, 1, arcFloat32, arcSum, &config,
                                       invented_comm(), nullptr, &ticket));
  expect_refused(arcPlanCreateAllReduceWith(&plan, &value, &value, 1, arcFloat32, arcSum, &config,
                                            invented_comm()));
  expect_refused(arcCommGetCodec(invented_comm(), 1, arcFloat32, arcSum, &config, &codec));
  expect_refused(arcCommInitRankConfig(&comm, 1, id, 0, &of_communicator));
}

TEST(CApi, RefusesAConfigOfACommunicatorThatWasNotInitialisedOrIsNewer) {
  arcUniqueId id;
  ASSERT_EQ(arcGetUniqueId(&id), arcSuccess);
  arcComm_t comm = nullptr;
  arcCommConfig_t config{};
  EXPECT_EQ(arcCommInitRankConfig(&comm, 1, id, 0, &config), arcInvalidArgument);
  EXPECT_NE(std::string(arcGetLastError(nullptr)).find("ARC_COMM_CONFIG_INITIALIZER"),
            std::string::npos);
  struct {
    arcCommConfig_t known = ARC_COMM_CONFIG_INITIALIZER;
    std::uint64_t newer[8] = {};
  } longer;
  longer.known.struct_size = sizeof(longer);
  longer.newer[0] = 1;
  EXPECT_EQ(arcCommInitRankConfig(&comm, 1, id, 0, &longer.known), arcInvalidArgument);
  EXPECT_EQ(last().reason, arcReasonVersion);
}

// most_sms came later.
TEST(CApi, TakesAConfigOfACommunicatorOfAnOlderHeaderAndRefusesOneWithWhatIsReserved) {
  arcUniqueId id;
  ASSERT_EQ(arcGetUniqueId(&id), arcSuccess);
  arcComm_t comm = nullptr;
  arcCommConfig_t config = ARC_COMM_CONFIG_INITIALIZER;
  config.struct_size = offsetof(arcCommConfig_t, most_sms);
  config.most_sms = 7;  // whatever lies behind it
  config.reserved = 7;
  EXPECT_EQ(arcCommInitRankConfig(&comm, 0, id, 0, &config), arcInvalidArgument);
  EXPECT_NE(std::string(arcGetLastError(nullptr)).find("ranks is 0"), std::string::npos)
      << "the config is no reason";
  config.struct_size = sizeof(config);
  EXPECT_EQ(arcCommInitRankConfig(&comm, 0, id, 0, &config), arcInvalidArgument);
  EXPECT_EQ(last().reason, arcReasonVersion);
}

TEST(CApi, RefusesRanksOutOfRange) {
  arcUniqueId id;
  ASSERT_EQ(arcGetUniqueId(&id), arcSuccess);
  arcComm_t comm = nullptr;
  EXPECT_EQ(arcCommInitRank(&comm, 0, id, 0), arcInvalidArgument);
  EXPECT_EQ(arcCommInitRank(&comm, 65, id, 0), arcInvalidArgument);
  EXPECT_EQ(arcCommInitRank(&comm, 4, id, 4), arcInvalidArgument);
  EXPECT_EQ(arcCommInitRank(&comm, 4, id, -1), arcInvalidArgument);
  EXPECT_EQ(arcCommInitRank(nullptr, 4, id, 1), arcInvalidArgument);
  EXPECT_NE(std::string(arcGetLastError(nullptr)).find("comm is null"), std::string::npos);
}

TEST(CApi, RefusesAUniqueIdOfZeros) {
  const arcUniqueId zero{};
  arcComm_t comm = nullptr;
  EXPECT_EQ(arcCommInitRank(&comm, 1, zero, 0), arcInvalidArgument);
  EXPECT_NE(std::string(arcGetLastError(nullptr)).find("arcGetUniqueId"), std::string::npos);
}

TEST(CApi, KnowsNoHandleItDidNotGive) {
  int number = 0;
  std::uint64_t epoch = 0;
  float value = 1;
  arcResult_t state = arcSuccess;
  EXPECT_EQ(arcCommCount(invented_comm(), &number), arcNotFound);
  EXPECT_EQ(arcCommUserRank(invented_comm(), &number), arcNotFound);
  EXPECT_EQ(arcCommGetEpoch(invented_comm(), &epoch), arcNotFound);
  EXPECT_EQ(arcCommGetAsyncError(invented_comm(), &state), arcNotFound);
  EXPECT_EQ(arcCommDestroy(invented_comm()), arcNotFound);
  EXPECT_EQ(arcCommAbort(invented_comm()), arcNotFound);
  EXPECT_EQ(arcCommRebuild(invented_comm()), arcNotFound);
  EXPECT_EQ(arcAllReduce(&value, &value, 1, arcFloat32, arcSum, invented_comm(), nullptr),
            arcNotFound);
  EXPECT_EQ(last().reason, arcReasonUnknownHandle);
  EXPECT_EQ(arcCommDestroy(nullptr), arcInvalidArgument);
  EXPECT_EQ(arcPlanStart(reinterpret_cast<arcPlan_t>(&value), nullptr), arcNotFound);
  EXPECT_EQ(arcPlanWait(nullptr, 1), arcInvalidArgument);
  EXPECT_EQ(arcWait(77, 1), arcNotFound);
  EXPECT_EQ(arcTest(0), arcNotFound);
  EXPECT_EQ(arcMemFree(&value), arcNotFound);
  EXPECT_EQ(arcMemDeregister(&value), arcNotFound);
}

TEST(CApi, SaysAtOnceThatNoDaemonRuns) {
  arcConfig_t config = ARC_CONFIG_INITIALIZER;
  config.runtime_dir = "/nonexistent/arcommd";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(arcInit(&config), arcUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  const arcErrorInfo_t info = last();
  EXPECT_EQ(info.reason, arcReasonNotRunning);
  EXPECT_EQ(info.rank, -1);
  EXPECT_EQ(info.seq, UINT64_MAX);
  EXPECT_NE(std::string(info.message).find("/nonexistent/arcommd/client.sock"), std::string::npos);
}

TEST(CApi, RefusesAConfigOfUnknownSize) {
  arcConfig_t config = ARC_CONFIG_INITIALIZER;
  config.struct_size = 3;
  EXPECT_EQ(arcInit(&config), arcInvalidArgument);
}

TEST(CApi, RefusesARuntimeFolderThatNoSocketFitsIn) {
  const std::string folder(200, 'x');
  arcConfig_t config = ARC_CONFIG_INITIALIZER;
  config.runtime_dir = folder.c_str();
  EXPECT_EQ(arcInit(&config), arcInvalidArgument);
}

TEST(CApi, CutsALongMessageBetweenCharacters) {
  const std::size_t most = sizeof(arcErrorInfo_t::message) - 1;
  for (std::size_t before = most - 4; before <= most; ++before) {
    std::string message(before, 'x');
    for (int i = 0; i < 10; ++i) message += "\xe2\x82\xac";  // a euro sign
    arcomm::client::last_error().error =
        arcomm::error(arcomm::ErrorCode::Internal, arcomm::Reason::None, message);
    const std::string told = last().message;
    EXPECT_EQ(told.size(), before + (most - before) / 3 * 3);
    EXPECT_EQ(told, message.substr(0, told.size()));
  }
}

TEST(CApi, FillsNoMoreOfTheErrorThanTheCallerHas) {
  struct {
    arcErrorInfo_t info;
    char guard[8];
  } caller{};
  arcCommDestroy(invented_comm());
  caller.info.struct_size = offsetof(arcErrorInfo_t, rank);
  caller.info.rank = 123456;
  EXPECT_EQ(arcGetLastErrorInfo(&caller.info), arcSuccess);
  EXPECT_EQ(caller.info.code, arcNotFound);
  EXPECT_EQ(caller.info.rank, 123456);
  EXPECT_EQ(arcGetLastErrorInfo(nullptr), arcInvalidArgument);
}

TEST(CApi, KeepsTheLastErrorByThreadAndNotByCommunicator) {
  EXPECT_EQ(arcCommDestroy(invented_comm()), arcNotFound);
  const std::string by_thread = arcGetLastError(nullptr);
  EXPECT_FALSE(by_thread.empty());
  EXPECT_EQ(arcGetLastError(invented_comm()), by_thread) << "it need not exist";
  arcComm_t const other = reinterpret_cast<arcComm_t>(std::uintptr_t{77});
  EXPECT_EQ(arcGetLastError(other), by_thread) << "nor have had an error";
  std::string elsewhere = "not asked";
  std::thread([&] { elsewhere = arcGetLastError(invented_comm()); }).join();
  EXPECT_EQ(elsewhere, "");
}

TEST(CApi, EndsNoGroupThatWasNotStarted) {
  EXPECT_EQ(arcGroupEnd(), arcFailedPrecondition);
}

}  // namespace

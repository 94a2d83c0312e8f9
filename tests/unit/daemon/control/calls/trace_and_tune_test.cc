// What an operator asks for beside the state of things: traces and tuning.
#include "daemon/control/rpc/request_limits.h"
#include "tests/unit/daemon/control/control_fixture.h"

namespace arcomm::test {
namespace {

using grpc::StatusCode;

TEST_F(ControlTest, TracesThePreviousDaemonsOperationsWhenAskedTo) {
  actions_.previous.operations = {FlightRecord{.number = 7, .epoch = 2, .seq = 3, .pid = 4711},
                                  FlightRecord{.number = 8, .epoch = 2, .seq = 4, .pid = 4711}};
  actions_.previous.network = {
      {.number = 1, .epoch = 2, .seq = 4, .posted_ns = 10, .sent_ns = 11, .nodes = 2}};
  start();
  v1::TraceRequest request;
  v1::TraceReply reply;
  EXPECT_TRUE(call(*admin_, &v1::NodeAdmin::Stub::Trace, request, &reply).status.ok());
  EXPECT_EQ(reply.records_size(), 0);
  request.set_previous(true);
  EXPECT_TRUE(call(*admin_, &v1::NodeAdmin::Stub::Trace, request, &reply).status.ok());
  ASSERT_EQ(reply.records_size(), 2);
  EXPECT_EQ(reply.records(0).seq(), 3u);
  EXPECT_EQ(reply.records(0).pid(), 4711);
  EXPECT_FALSE(reply.records(0).has_network());
  ASSERT_TRUE(reply.records(1).has_network());
  EXPECT_EQ(reply.records(1).network().posted_ns(), 10u);
  EXPECT_EQ(reply.records(1).network().nodes(), 2u);
}

TEST_F(ControlTest, RefusesATuneThatNamesTooManyPeersOrOnesThatAreTooLong) {
  start();
  const auto refusal_of = [this](const v1::TuneRequest& request) {
    grpc::ClientContext context;
    const auto reader = admin_->Tune(&context, request);
    v1::TuneReply reply;
    EXPECT_FALSE(reader->Read(&reply));
    return reader->Finish();
  };
  v1::TuneRequest many, longer;
  for (int i = 0; i <= kMostPeersInRequest; ++i) many.add_peers("a:1");
  longer.add_peers(std::string(kMostNameBytes + 1, 'a'));
  for (const auto& [request, words] : {std::pair(many, "number of peers has 129, and 128"),
                                       {longer, "the request's peers has 257, and 256"}}) {
    const grpc::Status refusal = refusal_of(request);
    EXPECT_EQ(refusal.error_code(), StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_NE(refusal.error_message().find(words), std::string::npos) << refusal.error_message();
  }
}

TEST_F(ControlTest, StreamsATuneAndRunsOneAtATime) {
  start();
  grpc::ClientContext context;
  const auto reader = admin_->Tune(&context, v1::TuneRequest());
  int messages = 0;
  v1::TuneReply reply;
  while (reader->Read(&reply)) ++messages;
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(messages, 101);
  EXPECT_TRUE(reply.finished());

  actions_.endless = true;
  grpc::ClientContext first_context;
  const auto first = admin_->Tune(&first_context, v1::TuneRequest());
  ASSERT_TRUE(first->Read(&reply));
  grpc::ClientContext second_context;
  const auto second = admin_->Tune(&second_context, v1::TuneRequest());
  EXPECT_FALSE(second->Read(&reply));
  EXPECT_EQ(second->Finish().error_code(), StatusCode::FAILED_PRECONDITION);
  first_context.TryCancel();
  while (first->Read(&reply)) {
  }
  EXPECT_EQ(first->Finish().error_code(), StatusCode::CANCELLED);
  // The reader is gone: the tune ends by itself and another may begin.
  actions_.endless = false;
  EXPECT_TRUE(eventually([&] {
    grpc::ClientContext again;
    const auto retry = admin_->Tune(&again, v1::TuneRequest());
    while (retry->Read(&reply)) {
    }
    return retry->Finish().ok();
  }));
}

// As at the limit of the service's tasks.
TEST_F(ControlTest, ATuneWithoutAThreadIsRefusedAndALaterOneRuns) {
  start();
  status();  // what threads gRPC needs, it has
  const auto tune = [this] {
    grpc::ClientContext context;
    const auto reader = admin_->Tune(&context, v1::TuneRequest());
    v1::TuneReply reply;
    while (reader->Read(&reply)) {
    }
    return reader->Finish();
  };
  ASSERT_TRUE(tune().ok());
  pthread_attr_t usual, hungry;
  ASSERT_EQ(::pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(::pthread_getattr_default_np(&hungry), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&hungry, std::size_t{1} << 46), 0);
  ASSERT_EQ(::pthread_setattr_default_np(&hungry), 0);
  const grpc::Status refused = tune();
  ASSERT_EQ(::pthread_setattr_default_np(&usual), 0);
  EXPECT_EQ(refused.error_code(), StatusCode::RESOURCE_EXHAUSTED) << refused.error_message();
  EXPECT_NE(refused.error_message().find("no thread to tune on"), std::string::npos);
  EXPECT_TRUE(tune().ok());
  ::pthread_attr_destroy(&usual);
  ::pthread_attr_destroy(&hungry);
}

}  // namespace
}  // namespace arcomm::test

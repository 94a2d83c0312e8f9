// What the library asks and understands, call by call, against the generated code: a server that
// parses each request with it and answers with a reply that it serialized.
#include "client/src/control/node_control.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "proto/arcommd/v1/control.pb.h"
#include "proto/gpu/launch_table.h"
#include "proto/version.h"
#include "tests/unit/client/control/fake_grpc_server.h"

namespace arcomm::client {
namespace {

namespace v1 = ::arcommd::v1;

constexpr std::uint64_t kLarge = 0xfedcba9876543210u;

SessionKey key() {
  SessionKey key{.id = SessionId::from_bits(kLarge)};
  key.token.fill(std::byte{0x7e});
  return key;
}

// Longer than a busy machine makes a daemon wait that answers.
constexpr std::chrono::seconds kTakeBackFor{5};

Deadline soon() {
  return Deadline::after(std::chrono::seconds(5));
}

// Time enough to be sent to a daemon that does not answer.
Deadline late() {
  return Deadline::after(std::chrono::milliseconds(500));
}

// Answers `call` with `reply` and gives what it was asked, as the generated code reads it.
template <typename Request>
Request asked(const std::string& reply, const std::function<void(NodeControl&)>& call) {
  auto message = std::make_shared<std::string>();
  {
    FakeGrpcServer server({[&reply, message](FakePeer& peer) {
      while (const std::uint32_t stream = peer.read_request()) {
        *message = peer.message();
        if (!peer.send(http2::answer(stream, reply))) return;
      }
    }});
    NodeControl control(server.path());
    call(control);
  }
  Request request;
  EXPECT_TRUE(request.ParseFromString(*message));
  return request;
}

template <typename Request>
Request asked_of_session(const std::string& reply, const std::function<void(NodeControl&)>& call) {
  const Request request = asked<Request>(reply, call);
  EXPECT_EQ(request.session().session(), kLarge);
  EXPECT_EQ(request.session().session_token(), std::string(kTokenBytes, '\x7e'));
  return request;
}

TEST(NodeControlMessages, Attach) {
  v1::AttachReply reply;
  reply.set_session(kLarge);
  reply.set_session_token(std::string(kTokenBytes, 't'));
  reply.set_fd_ticket(3);
  reply.set_daemon_version(400);
  reply.set_device("host:0");
  reply.set_default_timeout_ms(30'000);
  reply.set_segment_limit_bytes(std::uint64_t{1} << 40);
  reply.set_max_in_flight(64);
  reply.set_on_gpus(true);
  reply.set_max_chunks(256);
  reply.set_peer_address("10.0.0.1:7400");
  const auto request =
      asked<v1::AttachRequest>(reply.SerializeAsString(), [&](NodeControl& control) {
        const Result<Attached> attached = control.attach("gpu", "a process", soon());
        ASSERT_TRUE(attached.ok()) << attached.error().to_string();
        EXPECT_EQ(attached->key.id.bits(), kLarge);
        EXPECT_EQ(attached->key.token[15], std::byte{'t'});
        EXPECT_EQ(attached->fd_ticket, 3u);
        EXPECT_EQ(attached->daemon_version, 400u);
        EXPECT_EQ(attached->device, "host:0");
        EXPECT_EQ(attached->default_timeout_ms, 30'000u);
        EXPECT_EQ(attached->segment_limit_bytes, std::uint64_t{1} << 40);
        EXPECT_EQ(attached->max_in_flight, 64u);
        EXPECT_TRUE(attached->on_gpus);
        EXPECT_EQ(attached->max_chunks, 256u);
        EXPECT_EQ(attached->peer_address, "10.0.0.1:7400");
      });
  EXPECT_EQ(request.ring_abi_major(), kRingAbiMajor);
  EXPECT_EQ(request.ring_abi_minor(), kRingAbiMinor);
  EXPECT_EQ(request.client_version(), kVersionNumber);
  EXPECT_EQ(request.device(), "gpu");
  EXPECT_EQ(request.process_name(), "a process");
}

TEST(NodeControlMessages, CreateCommunicator) {
  v1::CreateCommunicatorReply reply;
  reply.set_member(kLarge);
  reply.set_epoch(2);
  reply.add_rank_devices("of no interest");
  reply.set_segment_limit_bytes(4096);
  reply.set_fd_ticket(5);
  reply.set_mailbox_bytes(6);
  reply.set_exchange_bytes(7);
  reply.set_max_timeout_ms(10);
  reply.set_launch_table("a table");
  const auto request = asked_of_session<v1::CreateCommunicatorRequest>(
      reply.SerializeAsString(), [&](NodeControl& control) {
        const Result<CreatedCommunicator> made = control.create_communicator(
            key(),
            {.unique_id = "unique",
             .rank = 3,
             .ranks = 8,
             .timeout_ms = 30'000,
             .device = "GPU-1",
             .visible_gpus = {"GPU-1", "GPU-2"},
             .in_stream_hindrance = InStreamHindrance::None,
             .default_coding = {.codec = Codec::Q6, .error_class = {30.5, 0.01}},
             .most_sms = 16},
            soon());
        ASSERT_TRUE(made.ok()) << made.error().to_string();
        EXPECT_EQ(made->member.bits(), kLarge);
        EXPECT_EQ(made->epoch, 2u);
        EXPECT_EQ(made->segment_limit_bytes, 4096u);
        EXPECT_EQ(made->fd_ticket, 5u);
        EXPECT_EQ(made->mailbox_bytes, 6u);
        EXPECT_EQ(made->exchange_bytes, 7u);
        EXPECT_EQ(made->max_timeout_ms, 10u);
        EXPECT_EQ(made->launch_table, "a table");
      });
  EXPECT_EQ(request.unique_id(), "unique");
  EXPECT_EQ(request.rank(), 3);
  EXPECT_EQ(request.ranks(), 8);
  EXPECT_EQ(request.timeout_ms(), 30'000u);
  EXPECT_EQ(request.device(), "GPU-1");
  ASSERT_EQ(request.visible_gpus_size(), 2);
  EXPECT_EQ(request.visible_gpus(1), "GPU-2");
  EXPECT_EQ(request.in_stream_abi(), kInStreamAbi);
  EXPECT_EQ(request.launch_table_version(), kLaunchTableVersion);
  EXPECT_EQ(request.default_codec(), static_cast<unsigned>(Codec::Q6));
  EXPECT_EQ(request.default_least_snr_db(), 30.5);
  EXPECT_EQ(request.default_most_relative_error(), 0.01);
  EXPECT_EQ(request.most_sms(), 16u);
}

TEST(NodeControlMessages, EndsOfCommunicatorsAndSessions) {
  const MemberId member = MemberId::from_bits(300);
  const auto destroyed =
      asked_of_session<v1::DestroyCommunicatorRequest>("", [&](NodeControl& control) {
        EXPECT_TRUE(control.destroy_communicator(key(), member, soon()).ok());
      });
  EXPECT_EQ(destroyed.member(), 300u);
  const auto aborted =
      asked_of_session<v1::AbortCommunicatorRequest>("", [&](NodeControl& control) {
        EXPECT_TRUE(control.abort_communicator(key(), member, "it hurts", soon()).ok());
      });
  EXPECT_EQ(aborted.member(), 300u);
  EXPECT_EQ(aborted.why(), "it hurts");
  asked_of_session<v1::DetachRequest>(
      "", [&](NodeControl& control) { EXPECT_TRUE(control.detach(key(), soon()).ok()); });
}

TEST(NodeControlMessages, Buffers) {
  v1::BufferReply reply;
  reply.set_buffer(kLarge);
  reply.set_length_bytes(8192);
  reply.set_fd_ticket(4);
  const auto expect_reply = [](const Result<SharedBuffer>& buffer) {
    ASSERT_TRUE(buffer.ok()) << buffer.error().to_string();
    EXPECT_EQ(buffer->buffer.bits(), kLarge);
    EXPECT_EQ(buffer->length_bytes, 8192u);
    EXPECT_EQ(buffer->fd_ticket, 4u);
  };
  const auto allocated = asked_of_session<v1::AllocateBufferRequest>(
      reply.SerializeAsString(), [&](NodeControl& control) {
        expect_reply(control.allocate_buffer(key(), 5000, "GPU-1", soon()));
      });
  EXPECT_EQ(allocated.bytes(), 5000u);
  EXPECT_EQ(allocated.device(), "GPU-1");
  const auto registered = asked_of_session<v1::RegisterBufferRequest>(
      reply.SerializeAsString(), [&](NodeControl& control) {
        expect_reply(control.register_buffer(key(), 1, 4096, 300, soon()));
      });
  EXPECT_EQ(registered.offered_fd(), 1u);
  EXPECT_EQ(registered.offset_bytes(), 4096u);
  EXPECT_EQ(registered.length_bytes(), 300u);
}

TEST(NodeControlMessages, BuffersOnGpus) {
  NewGpuBuffer wanted{.device = "GPU-1", .bytes = 300, .ipc_handle = "a handle", .offered_fd = 9};
  wanted.chunks.push_back({.bytes = 100, .offered_fd = 5});
  wanted.chunks.push_back({.bytes = 200});
  wanted.chunks[1].fabric.fill(std::byte{'f'});
  const auto request = asked_of_session<v1::RegisterBufferRequest>("", [&](NodeControl& control) {
    EXPECT_TRUE(control.register_gpu_buffer(key(), wanted, soon()).ok());
  });
  EXPECT_EQ(request.offered_fd(), 9u);
  EXPECT_EQ(request.offset_bytes(), 0u);
  EXPECT_EQ(request.length_bytes(), 300u);
  EXPECT_EQ(request.allocation_bytes(), 300u);
  EXPECT_EQ(request.device(), "GPU-1");
  EXPECT_EQ(request.ipc_handle(), "a handle");
  ASSERT_EQ(request.chunks_size(), 2);
  EXPECT_EQ(request.chunks(0).offered_fd(), 5u);
  EXPECT_EQ(request.chunks(0).fabric_handle(), "");
  EXPECT_EQ(request.chunks(0).bytes(), 100u);
  EXPECT_EQ(request.chunks(1).offered_fd(), 0u);
  EXPECT_EQ(request.chunks(1).fabric_handle(), std::string(kFabricHandleBytes, 'f'));
  EXPECT_EQ(request.chunks(1).bytes(), 200u);
}

// What a call gives that nobody answers in time, or whose connection breaks, nobody can name.
TEST(NodeControlMessages, CallsWhoseEndIsNotHeardAreTakenBackByTheirNumbers) {
  using Call = std::function<Error(NodeControl&)>;
  const Call calls[] = {
      [](NodeControl& control) {
        return control.register_buffer(key(), 1, 0, 300, late()).error();
      },
      [](NodeControl& control) {
        return control.register_gpu_buffer(key(), {.bytes = 300}, soon()).error();
      },
      [](NodeControl& control) { return control.create_plan(key(), {}, soon()).error(); }};
  for (const Call& call : calls) {
    std::string asked, taken_back;
    {
      const bool in_time = &call != calls;
      FakeGrpcServer server({[&](FakePeer& peer) {
                               peer.read_request();
                               asked = peer.message();
                               if (!in_time) peer.wait_for_hang_up();
                             },
                             [&](FakePeer& peer) {
                               const std::uint32_t stream = peer.read_request();
                               taken_back = peer.message();
                               peer.send(http2::answer(stream, ""));
                               peer.wait_for_hang_up();
                             }});
      NodeControl control(server.path(), kTakeBackFor);
      const Error why = call(control);
      EXPECT_EQ(why.reason, in_time ? Reason::DaemonLost : Reason::Timeout) << why.message;
    }
    v1::DetachRequest first;  // any that begins with the session
    v1::TakeBackRequest second;
    ASSERT_TRUE(first.ParseFromString(asked));
    ASSERT_TRUE(second.ParseFromString(taken_back));
    EXPECT_NE(first.session().call(), 0u);
    EXPECT_EQ(second.session().call(), first.session().call());
    EXPECT_EQ(second.session().session(), kLarge);
  }
}

// A daemon that stands still for a moment hears neither the call nor that it is taken back.
TEST(NodeControlMessages, ACallThatCouldNotBeTakenBackIsSoBeforeTheNextOne) {
  std::string taken_back, asked;
  const auto hear_nothing = [](FakePeer& peer) {
    peer.read_request();
    peer.wait_for_hang_up();
  };
  {
    FakeGrpcServer server({hear_nothing, hear_nothing, [&](FakePeer& peer) {
                             std::uint32_t stream = peer.read_request();
                             taken_back = peer.message();
                             peer.send(http2::answer(stream, ""));
                             for (int calls = 0; calls < 2; ++calls) {
                               stream = peer.read_request();
                               asked = peer.message();
                               peer.send(http2::answer(stream, ""));
                             }
                             peer.wait_for_hang_up();
                           }});
    NodeControl control(server.path(), std::chrono::seconds(1));
    EXPECT_EQ(control.register_buffer(key(), 1, 0, 300, late()).error().reason, Reason::Timeout);
    EXPECT_TRUE(control.register_buffer(key(), 1, 0, 400, soon()).ok());
    EXPECT_TRUE(control.register_buffer(key(), 1, 0, 500, soon()).ok());
  }
  v1::TakeBackRequest again;
  ASSERT_TRUE(again.ParseFromString(taken_back));
  EXPECT_EQ(again.session().call(), 1u);
  v1::RegisterBufferRequest last;
  ASSERT_TRUE(last.ParseFromString(asked));
  EXPECT_EQ(last.length_bytes(), 500u) << "and only once";
}

// A daemon that is busy has not taken back what it refuses to; one that knows no such call has.
TEST(NodeControlMessages, ACallIsTakenBackAgainUntilTheDaemonSaysThatItIs) {
  struct Said {
    const char* code;
    bool is_settled;
  };
  // DeadlineExceeded, ResourceExhausted, Unavailable; InvalidArgument, NotFound, PermissionDenied,
  // Unimplemented, Unauthenticated.
  for (const auto& [code, is_settled] :
       {Said{"4", false}, Said{"8", false}, Said{"14", false}, Said{"3", true}, Said{"5", true},
        Said{"7", true}, Said{"12", true}, Said{"16", true}}) {
    std::string next;
    {
      FakeGrpcServer server({[](FakePeer& peer) { peer.read_request(); },  // and hangs up
                             [&, code = code](FakePeer& peer) {
                               std::uint32_t stream = peer.read_request();
                               peer.send(http2::answer_start(stream) +
                                         http2::answer_end(stream, {{"grpc-status", code}}));
                               stream = peer.read_request();
                               next = peer.message();
                               do {
                                 peer.send(http2::answer(stream, ""));
                               } while ((stream = peer.read_request()) != 0);
                             }});
      NodeControl control(server.path(), kTakeBackFor);
      EXPECT_EQ(control.create_plan(key(), {}, soon()).error().reason, Reason::DaemonLost);
      EXPECT_TRUE(control.register_buffer(key(), 1, 0, 400, soon()).ok());
    }
    v1::TakeBackRequest request;  // or another that begins with the session
    ASSERT_TRUE(request.ParseFromString(next));
    EXPECT_EQ(request.session().call(), is_settled ? 2u : 1u) << code;
  }
}

TEST(NodeControlMessages, WhatTheDaemonItselfRefusesIsNotTakenBack) {
  for (const char* code : {"4", "14"}) {  // DeadlineExceeded, Unavailable
    int requests = 0;
    {
      FakeGrpcServer server({[&](FakePeer& peer) {
        while (const std::uint32_t stream = peer.read_request()) {
          ++requests;
          peer.send(http2::answer_start(stream) +
                    http2::answer_end(stream, {{"grpc-status", code}}));
        }
      }});
      NodeControl control(server.path());
      EXPECT_FALSE(control.create_plan(key(), {}, soon()).ok());
    }
    EXPECT_EQ(requests, 1) << code;
  }
}

TEST(NodeControlMessages, BuffersAndOffersThatAreLetGo) {
  const auto released = asked_of_session<v1::ReleaseBufferRequest>("", [&](NodeControl& control) {
    EXPECT_TRUE(control.release_buffer(key(), BufferId::from_bits(kLarge), soon()).ok());
  });
  EXPECT_EQ(released.buffer(), kLarge);
  EXPECT_EQ(released.offered_fds_size(), 0);
  const auto withdrawn = asked_of_session<v1::ReleaseBufferRequest>("", [&](NodeControl& control) {
    EXPECT_TRUE(control.withdraw_offers(key(), {7, 1 << 20}, soon()).ok());
  });
  EXPECT_EQ(withdrawn.buffer(), 0u);
  ASSERT_EQ(withdrawn.offered_fds_size(), 2);
  EXPECT_EQ(withdrawn.offered_fds(0), 7u);
  EXPECT_EQ(withdrawn.offered_fds(1), 1u << 20);
}

TEST(NodeControlMessages, Plans) {
  v1::CreatePlanReply reply;
  reply.set_plan(kLarge);
  const auto created =
      asked_of_session<v1::CreatePlanRequest>(reply.SerializeAsString(), [&](NodeControl& control) {
        const Result<PlanId> plan =
            control.create_plan(key(),
                                {.member = MemberId::from_bits(2),
                                 .send_buffer = BufferId::from_bits(3),
                                 .send_offset_bytes = 4,
                                 .recv_buffer = BufferId::from_bits(5),
                                 .recv_offset_bytes = 6,
                                 .spec = {.send_count = std::uint64_t{1} << 40,
                                          .recv_count = std::uint64_t{1} << 41,
                                          .dtype = DType::Float64,
                                          .op = ReduceOp::Max,
                                          .root = 13},
                                 .timeout_ms = 11},
                                soon());
        ASSERT_TRUE(plan.ok()) << plan.error().to_string();
        EXPECT_EQ(plan->bits(), kLarge);
      });
  EXPECT_EQ(created.member(), 2u);
  EXPECT_EQ(created.send_buffer(), 3u);
  EXPECT_EQ(created.send_offset_bytes(), 4u);
  EXPECT_EQ(created.recv_buffer(), 5u);
  EXPECT_EQ(created.recv_offset_bytes(), 6u);
  EXPECT_EQ(created.send_count(), std::uint64_t{1} << 40);
  EXPECT_EQ(created.recv_count(), std::uint64_t{1} << 41);
  EXPECT_EQ(created.collective(), 0u);
  EXPECT_EQ(created.root_plus_one(), 14u);
  EXPECT_EQ(created.dtype(), 3u);
  EXPECT_EQ(created.op(), 3u);
  EXPECT_EQ(created.codec(), 0u);
  EXPECT_EQ(created.timeout_ms(), 11u);
  const auto destroyed = asked_of_session<v1::DestroyPlanRequest>("", [&](NodeControl& control) {
    EXPECT_TRUE(control.destroy_plan(key(), PlanId::from_bits(kLarge), soon()).ok());
  });
  EXPECT_EQ(destroyed.plan(), kLarge);
}

TEST(NodeControlMessages, Describe) {
  v1::DescribeReply reply;
  reply.set_state("revoked: rank 1 died");
  reply.set_reason(6);
  reply.set_culprit_rank(-1);
  reply.set_epoch(7);
  reply.set_next_seq(8);
  const auto request =
      asked_of_session<v1::DescribeRequest>(reply.SerializeAsString(), [&](NodeControl& control) {
        const Result<Described> described =
            control.describe(key(), MemberId::from_bits(300), soon());
        ASSERT_TRUE(described.ok()) << described.error().to_string();
        EXPECT_EQ(described->state, "revoked: rank 1 died");
        EXPECT_EQ(described->reason, Reason::RemoteDied);
        EXPECT_EQ(described->culprit, -1);
        EXPECT_EQ(described->epoch, 7u);
      });
  EXPECT_EQ(request.member(), 300u);
}

}  // namespace
}  // namespace arcomm::client

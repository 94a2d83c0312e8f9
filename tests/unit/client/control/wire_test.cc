#include "client/src/control/wire.h"

#include <gtest/gtest.h>

#include "proto/arcommd/v1/control.pb.h"

namespace arcomm::client {
namespace {

namespace v1 = ::arcommd::v1;

TEST(Wire, WritesWhatTheGeneratedCodeReads) {
  WireWriter reference;
  reference.number(1, 0xfedcba9876543210u);
  reference.bytes(2, std::string_view("0123456789abcdef", 16));
  WireWriter request;
  request.message(1, reference);
  request.bytes(2, "identifier");
  request.number(3, 3);
  request.number(4, 8);
  request.number(5, 30000);
  v1::CreateCommunicatorRequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(std::move(request).take()));
  EXPECT_EQ(parsed.session().session(), 0xfedcba9876543210u);
  EXPECT_EQ(parsed.session().session_token(), "0123456789abcdef");
  EXPECT_EQ(parsed.unique_id(), "identifier");
  EXPECT_EQ(parsed.rank(), 3);
  EXPECT_EQ(parsed.ranks(), 8);
  EXPECT_EQ(parsed.timeout_ms(), 30000u);
}

TEST(Wire, WritesTheSameBytesAsTheGeneratedCode) {
  v1::CreatePlanRequest generated;
  generated.set_member(1);
  generated.set_send_buffer(300);
  generated.set_send_count(std::uint64_t{1} << 40);
  generated.set_dtype(2);
  generated.set_timeout_ms(5);
  WireWriter ours;
  ours.number(2, 1);
  ours.number(3, 300);
  ours.number(4, 0);  // a default, left out
  ours.number(7, std::uint64_t{1} << 40);
  ours.number(8, 2);
  ours.number(11, 5);
  EXPECT_EQ(std::move(ours).take(), generated.SerializeAsString());
}

TEST(Wire, WritesPiecesOfMemoryAsTheGeneratedCodeDoes) {
  v1::RegisterBufferRequest generated;
  generated.set_allocation_bytes(300);
  for (std::uint64_t ticket = 5; ticket < 7; ++ticket) {
    v1::MemoryChunk* chunk = generated.add_chunks();
    chunk->set_offered_fd(ticket);
    chunk->set_bytes(100);
  }
  v1::MemoryChunk* by_handle = generated.add_chunks();
  by_handle->set_fabric_handle(std::string(64, 'f'));
  by_handle->set_bytes(100);
  WireWriter ours;
  ours.number(7, 300);
  for (std::uint64_t ticket = 5; ticket < 7; ++ticket) {
    WireWriter chunk;
    chunk.number(1, ticket);
    chunk.number(3, 100);
    ours.message(8, chunk);
  }
  WireWriter chunk;
  chunk.bytes(2, std::string(64, 'f'));
  chunk.number(3, 100);
  ours.message(8, chunk);
  EXPECT_EQ(std::move(ours).take(), generated.SerializeAsString());
}

TEST(Wire, RepeatsNumbersSoThatTheGeneratedCodeReadsThem) {
  WireWriter ours;
  ours.number(3, 7);
  ours.number(3, 1 << 20);
  v1::ReleaseBufferRequest generated;
  ASSERT_TRUE(generated.ParseFromString(std::move(ours).take()));
  ASSERT_EQ(generated.offered_fds_size(), 2);
  EXPECT_EQ(generated.offered_fds(0), 7u);
  EXPECT_EQ(generated.offered_fds(1), 1u << 20);
}

TEST(Wire, ReadsWhatTheGeneratedCodeWrites) {
  v1::DescribeReply reply;
  reply.set_state("revoked: rank 1 died");
  reply.set_reason(6);
  reply.set_culprit_rank(-1);
  reply.set_epoch(7);
  const std::string bytes = reply.SerializeAsString();
  WireReader reader(bytes);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.field(), 1u);
  EXPECT_EQ(reader.bytes(), "revoked: rank 1 died");
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.number(), 6u);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(static_cast<std::int64_t>(reader.number()), -1);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.number(), 7u);
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.ok());
}

TEST(Wire, StepsOverFieldsOfEveryWireType) {
  v1::WorkerStatus status;
  status.set_device("host:0");
  status.set_busy_fraction(0.5);  // fixed64
  status.set_operations_pending(4);
  const std::string bytes = status.SerializeAsString();
  WireReader reader(bytes);
  int fields = 0;
  while (reader.next()) ++fields;
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(fields, 3);
}

TEST(Wire, StopsAtMalformedBytes) {
  for (const std::string_view bytes :
       {std::string_view("\x08", 1),
        std::string_view("\x12\x05"
                         "ab",
                         4),
        std::string_view("\x0b", 1),
        std::string_view("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12),
        std::string_view("\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10)}) {
    WireReader reader(bytes);
    while (reader.next()) {
    }
    EXPECT_FALSE(reader.ok());
  }
}

}  // namespace
}  // namespace arcomm::client

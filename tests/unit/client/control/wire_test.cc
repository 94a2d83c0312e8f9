#include "client/src/control/wire.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "client/src/control/control_fields.h"
#include "proto/arcommd/v1/control.pb.h"

namespace arcomm::client {
namespace {

namespace v1 = ::arcommd::v1;

// Every number of control_fields.h is that of the generated code. A field that is missing here is
// one whose number nobody checks: add it with its enumerator.
#define SAME(message, name)                                                                  \
  static_assert(static_cast<int>(field::message::name) == v1::message::k##name##FieldNumber, \
                #message "." #name)
SAME(SessionRef, Session);
SAME(SessionRef, SessionToken);
SAME(AttachRequest, RingAbiMajor);
SAME(AttachRequest, RingAbiMinor);
SAME(AttachRequest, ClientVersion);
SAME(AttachRequest, Device);
SAME(AttachRequest, ProcessName);
SAME(AttachReply, Session);
SAME(AttachReply, SessionToken);
SAME(AttachReply, FdTicket);
SAME(AttachReply, DaemonVersion);
SAME(AttachReply, Device);
SAME(AttachReply, DefaultTimeoutMs);
SAME(AttachReply, SegmentLimitBytes);
SAME(AttachReply, MaxInFlight);
SAME(AttachReply, OnGpus);
SAME(AttachReply, MaxChunks);
SAME(AttachReply, PeerAddress);
SAME(CreateCommunicatorRequest, Session);
SAME(CreateCommunicatorRequest, UniqueId);
SAME(CreateCommunicatorRequest, Rank);
SAME(CreateCommunicatorRequest, Ranks);
SAME(CreateCommunicatorRequest, TimeoutMs);
SAME(CreateCommunicatorRequest, Device);
SAME(CreateCommunicatorRequest, VisibleGpus);
SAME(CreateCommunicatorRequest, InStreamAbi);
SAME(CreateCommunicatorRequest, LaunchTableVersion);
SAME(CreateCommunicatorRequest, InStreamHindrance);
SAME(CreateCommunicatorRequest, DefaultCodec);
SAME(CreateCommunicatorRequest, DefaultLeastSnrDb);
SAME(CreateCommunicatorRequest, DefaultMostRelativeError);
SAME(CreateCommunicatorReply, Member);
SAME(CreateCommunicatorReply, Epoch);
SAME(CreateCommunicatorReply, SegmentLimitBytes);
SAME(CreateCommunicatorReply, FdTicket);
SAME(CreateCommunicatorReply, MailboxBytes);
SAME(CreateCommunicatorReply, ExchangeBytes);
SAME(CreateCommunicatorReply, MaxTimeoutMs);
SAME(CreateCommunicatorReply, LaunchTable);
SAME(CreateCommunicatorReply, WhyNoCodecs);
SAME(DestroyCommunicatorRequest, Session);
SAME(DestroyCommunicatorRequest, Member);
SAME(AbortCommunicatorRequest, Session);
SAME(AbortCommunicatorRequest, Member);
SAME(AbortCommunicatorRequest, Why);
SAME(AllocateBufferRequest, Session);
SAME(AllocateBufferRequest, Bytes);
SAME(AllocateBufferRequest, Device);
SAME(MemoryChunk, OfferedFd);
SAME(MemoryChunk, FabricHandle);
SAME(MemoryChunk, Bytes);
SAME(RegisterBufferRequest, Session);
SAME(RegisterBufferRequest, OfferedFd);
SAME(RegisterBufferRequest, OffsetBytes);
SAME(RegisterBufferRequest, LengthBytes);
SAME(RegisterBufferRequest, Device);
SAME(RegisterBufferRequest, IpcHandle);
SAME(RegisterBufferRequest, AllocationBytes);
SAME(RegisterBufferRequest, Chunks);
SAME(BufferReply, Buffer);
SAME(BufferReply, LengthBytes);
SAME(BufferReply, FdTicket);
SAME(ReleaseBufferRequest, Session);
SAME(ReleaseBufferRequest, Buffer);
SAME(ReleaseBufferRequest, OfferedFds);
SAME(CreatePlanRequest, Session);
SAME(CreatePlanRequest, Member);
SAME(CreatePlanRequest, SendBuffer);
SAME(CreatePlanRequest, SendOffsetBytes);
SAME(CreatePlanRequest, RecvBuffer);
SAME(CreatePlanRequest, RecvOffsetBytes);
SAME(CreatePlanRequest, SendCount);
SAME(CreatePlanRequest, Dtype);
SAME(CreatePlanRequest, Op);
SAME(CreatePlanRequest, Codec);
SAME(CreatePlanRequest, TimeoutMs);
SAME(CreatePlanRequest, RecvCount);
SAME(CreatePlanRequest, Collective);
SAME(CreatePlanRequest, RootPlusOne);
SAME(CreatePlanRequest, Ahead);
SAME(CreatePlanRequest, OfErrorClass);
SAME(CreatePlanReply, Plan);
SAME(DestroyPlanRequest, Session);
SAME(DestroyPlanRequest, Plan);
SAME(TakeBackRequest, Session);
SAME(DescribeRequest, Session);
SAME(DescribeRequest, Member);
SAME(DescribeReply, State);
SAME(DescribeReply, Reason);
SAME(DescribeReply, CulpritRank);
SAME(DescribeReply, Epoch);
SAME(DetachRequest, Session);
#undef SAME

TEST(Wire, ReadsWhatTheGeneratedCodeWrites) {
  v1::DescribeReply reply;
  reply.set_state("revoked: rank 1 died");
  reply.set_reason(6);
  reply.set_culprit_rank(-1);
  reply.set_epoch(7);
  const std::string bytes = reply.SerializeAsString();
  WireReader<field::DescribeReply> reader(bytes);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.field(), field::DescribeReply::State);
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
  WireReader<field::Empty> reader(bytes);
  int fields = 0;
  while (reader.next()) ++fields;
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(fields, 3);
}

TEST(Wire, AFieldOfAnotherTypeSaysNothing) {
  // Field 1, Buffer: text where a number belongs; field 2, LengthBytes: eight bytes.
  const std::string bytes("\x0a\x02hi\x11\x01\x02\x03\x04\x05\x06\x07\x08\x18\x05", 15);
  WireReader<field::BufferReply> reader(bytes);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.number(), 0u);
  EXPECT_EQ(reader.bytes(), "hi");
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.number(), 0u);
  EXPECT_EQ(reader.bytes(), "");
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.field(), field::BufferReply::FdTicket);
  EXPECT_EQ(reader.number(), 5u);
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.ok());
}

TEST(Wire, StopsAtMalformedBytes) {
  for (const std::string_view bytes :
       {std::string_view("\x08", 1),
        std::string_view("\x12\x05"
                         "ab",
                         4),
        std::string_view("\x0b", 1), std::string_view("\x00\x01", 2),
        std::string_view("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12),
        std::string_view("\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10)}) {
    WireReader<field::BufferReply> reader(bytes);
    while (reader.next()) {
    }
    EXPECT_FALSE(reader.ok());
    EXPECT_FALSE(reader.next()) << "it stays at the mistake";
  }
}

TEST(Wire, EndsWithWhateverBytesItIsGiven) {
  std::mt19937 random(16);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    WireReader<field::AttachReply> reader(bytes);
    std::size_t fields = 0;
    while (reader.next()) {
      ++fields;
      ASSERT_LE(reader.bytes().size(), bytes.size());
    }
    ASSERT_LE(fields, bytes.size());
  }
}

}  // namespace
}  // namespace arcomm::client

// The fields of control.proto's messages that this library sends and reads, by name: the one place
// in the client where their numbers stand. Generated code must not come into libarclient, which
// loads beside any protobuf; tests/unit/client/control/wire_test.cc holds every number against it.
#pragma once

#include <protozero/types.hpp>

namespace arcomm::client::field {

enum class SessionRef : protozero::pbf_tag_type { Session = 1, SessionToken = 2, Call = 3 };

enum class AttachRequest : protozero::pbf_tag_type {
  RingAbiMajor = 1,
  RingAbiMinor = 2,
  ClientVersion = 3,
  Device = 4,
  ProcessName = 5,
};
enum class AttachReply : protozero::pbf_tag_type {
  Session = 1,
  SessionToken = 2,
  FdTicket = 3,
  DaemonVersion = 4,
  Device = 5,
  DefaultTimeoutMs = 6,
  SegmentLimitBytes = 7,
  MaxInFlight = 8,
  OnGpus = 9,
  MaxChunks = 10,
  PeerAddress = 11,
};

enum class CreateCommunicatorRequest : protozero::pbf_tag_type {
  Session = 1,
  UniqueId = 2,
  Rank = 3,
  Ranks = 4,
  TimeoutMs = 5,
  Device = 6,
  VisibleGpus = 7,
  InStreamAbi = 8,
  LaunchTableVersion = 9,
  InStreamHindrance = 10,
  DefaultCodec = 11,
  DefaultLeastSnrDb = 12,
  DefaultMostRelativeError = 13,
  MostInCallBytes = 14,
  MostSms = 15,
};
enum class CreateCommunicatorReply : protozero::pbf_tag_type {
  Member = 1,
  Epoch = 2,
  SegmentLimitBytes = 4,
  FdTicket = 5,
  MailboxBytes = 6,
  ExchangeBytes = 7,
  MaxTimeoutMs = 10,
  LaunchTable = 12,
  WhyNoCodecs = 13,
};
enum class DestroyCommunicatorRequest : protozero::pbf_tag_type { Session = 1, Member = 2 };
enum class AbortCommunicatorRequest : protozero::pbf_tag_type { Session = 1, Member = 2, Why = 3 };

enum class AllocateBufferRequest : protozero::pbf_tag_type { Session = 1, Bytes = 2, Device = 3 };
enum class MemoryChunk : protozero::pbf_tag_type { OfferedFd = 1, FabricHandle = 2, Bytes = 3 };
enum class RegisterBufferRequest : protozero::pbf_tag_type {
  Session = 1,
  OfferedFd = 2,
  OffsetBytes = 3,
  LengthBytes = 4,
  Device = 5,
  IpcHandle = 6,
  AllocationBytes = 7,
  Chunks = 8,
};
enum class BufferReply : protozero::pbf_tag_type { Buffer = 1, LengthBytes = 2, FdTicket = 3 };
enum class ReleaseBufferRequest : protozero::pbf_tag_type {
  Session = 1,
  Buffer = 2,
  OfferedFds = 3,
};

enum class CreatePlanRequest : protozero::pbf_tag_type {
  Session = 1,
  Member = 2,
  SendBuffer = 3,
  SendOffsetBytes = 4,
  RecvBuffer = 5,
  RecvOffsetBytes = 6,
  SendCount = 7,
  Dtype = 8,
  Op = 9,
  Codec = 10,
  TimeoutMs = 11,
  RecvCount = 12,
  Collective = 13,
  RootPlusOne = 14,
  Ahead = 15,
  OfErrorClass = 16,
};
enum class CreatePlanReply : protozero::pbf_tag_type { Plan = 1 };
enum class DestroyPlanRequest : protozero::pbf_tag_type { Session = 1, Plan = 2 };

enum class TakeBackRequest : protozero::pbf_tag_type { Session = 1 };

enum class DescribeRequest : protozero::pbf_tag_type { Session = 1, Member = 2 };
enum class DescribeReply : protozero::pbf_tag_type {
  State = 1,
  Reason = 2,
  CulpritRank = 3,
  Epoch = 4,
};
enum class DetachRequest : protozero::pbf_tag_type { Session = 1 };
enum class Empty : protozero::pbf_tag_type {};

}  // namespace arcomm::client::field

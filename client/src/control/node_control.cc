#include "client/src/control/node_control.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <protozero/pbf_builder.hpp>
#include <span>

#include "client/src/control/control_fields.h"
#include "client/src/control/wire.h"
#include "proto/gpu/launch_table.h"
#include "proto/version.h"

namespace arcomm::client {
namespace {

protozero::data_view as_view(std::string_view text) {
  return {text.data(), text.size()};
}

protozero::data_view as_view(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What a daemon says that has taken the call back, or that has nothing of it, or never will: asking
// it once more would come to the same. What it says while it is busy, or ends, is not among them.
bool is_settled(const Status& said) {
  if (said) return true;
  switch (said.error().code) {
    case ErrorCode::NotFound:
    case ErrorCode::PermissionDenied:
    case ErrorCode::Unauthenticated:
    case ErrorCode::Unimplemented:
    case ErrorCode::InvalidArgument:
      return true;
    default:
      return false;
  }
}

// Every request after Attach starts with who asks. Field: the request's; `message` outlives it.
// call: its number, by which it can be taken back; 0: none.
template <typename Field>
protozero::pbf_builder<Field> request_of(const SessionKey& session, std::string& message,
                                         std::uint64_t call = 0) {
  protozero::pbf_builder<Field> request(message);
  {
    protozero::pbf_builder<field::SessionRef> reference(request, Field::Session);
    reference.add_uint64(field::SessionRef::Session, session.id.bits());
    reference.add_bytes(field::SessionRef::SessionToken, as_view(session.token));
    if (call != 0) reference.add_uint64(field::SessionRef::Call, call);
  }
  return request;
}

// Calls and hands every field of the reply to `read`. Reply: the reply's fields.
template <typename Reply, typename Read>
Status exchange(ControlChannel& channel, std::string_view method, std::string_view request,
                Deadline deadline, Read&& read, CallEnd* end = nullptr) {
  std::string path("/arcommd.v1.NodeControl/");
  Result<std::string> reply = channel.call(path.append(method), request, deadline, end);
  if (!reply) return std::move(reply).error();
  WireReader<Reply> reader(*reply);
  while (reader.next()) read(reader);
  if (!reader.ok()) {
    return error(ErrorCode::Internal, Reason::Corrupt, "the daemon's answer to ", method,
                 " does not parse: are client and daemon of one version?");
  }
  return {};
}

Status exchange(ControlChannel& channel, std::string_view method, std::string_view request,
                Deadline deadline, CallEnd* end = nullptr) {
  return exchange<field::Empty>(
      channel, method, request, deadline, [](const WireReader<field::Empty>&) {}, end);
}

Result<SharedBuffer> buffer_call(ControlChannel& channel, std::string_view method,
                                 std::string_view request, Deadline deadline,
                                 CallEnd* end = nullptr) {
  using Reply = field::BufferReply;
  SharedBuffer buffer;
  const auto read = [&buffer](const WireReader<Reply>& reply) {
    if (reply.field() == Reply::Buffer) buffer.buffer = BufferId::from_bits(reply.number());
    if (reply.field() == Reply::LengthBytes) buffer.length_bytes = reply.number();
    if (reply.field() == Reply::FdTicket) buffer.fd_ticket = reply.number();
  };
  ARC_RETURN_IF_ERROR(exchange<Reply>(channel, method, request, deadline, read, end));
  return buffer;
}

}  // namespace

bool is_gone(const Error& why) {
  return why.code == ErrorCode::NotFound || why.code == ErrorCode::Unauthenticated ||
         why.reason == Reason::DaemonLost || why.reason == Reason::NotRunning;
}

Result<Attached> NodeControl::attach(std::string_view device, std::string_view process_name,
                                     Deadline deadline) {
  using Request = field::AttachRequest;
  using Reply = field::AttachReply;
  std::string message;
  protozero::pbf_builder<Request> request(message);
  request.add_uint32(Request::RingAbiMajor, kRingAbiMajor);
  request.add_uint32(Request::RingAbiMinor, kRingAbiMinor);
  request.add_uint32(Request::ClientVersion, kVersionNumber);
  request.add_string(Request::Device, as_view(device));
  request.add_string(Request::ProcessName, as_view(process_name));
  Attached attached;
  bool token_whole = false;
  ARC_RETURN_IF_ERROR(
      exchange<Reply>(channel_, "Attach", message, deadline, [&](const WireReader<Reply>& reply) {
        const std::uint64_t number = reply.number();
        switch (reply.field()) {
          case Reply::Session:
            attached.key.id = SessionId::from_bits(number);
            break;
          case Reply::SessionToken:
            token_whole = reply.bytes().size() == kTokenBytes;
            if (token_whole)
              std::memcpy(attached.key.token.data(), reply.bytes().data(), kTokenBytes);
            break;
          case Reply::FdTicket:
            attached.fd_ticket = number;
            break;
          case Reply::DaemonVersion:
            attached.daemon_version = static_cast<std::uint32_t>(number);
            break;
          case Reply::Device:
            attached.device = reply.bytes();
            break;
          case Reply::DefaultTimeoutMs:
            attached.default_timeout_ms = number;
            break;
          case Reply::SegmentLimitBytes:
            attached.segment_limit_bytes = number;
            break;
          case Reply::MaxInFlight:
            attached.max_in_flight = static_cast<std::uint32_t>(number);
            break;
          case Reply::OnGpus:
            attached.on_gpus = number != 0;
            break;
          case Reply::MaxChunks:
            attached.max_chunks = static_cast<std::uint32_t>(number);
            break;
          case Reply::PeerAddress:
            attached.peer_address = reply.bytes();
            break;
        }  // or a newer daemon's field
      }));
  if (!attached.key.id.valid() || !token_whole) {
    return error(
        ErrorCode::Internal, Reason::Corrupt,
        "the daemon's answer to Attach names no session: are client and daemon of one version?");
  }
  return attached;
}

Result<CreatedCommunicator> NodeControl::create_communicator(const SessionKey& session,
                                                             const NewCommunicator& wanted,
                                                             Deadline deadline) {
  using Request = field::CreateCommunicatorRequest;
  using Reply = field::CreateCommunicatorReply;
  std::string message;
  auto request = request_of<Request>(session, message);
  request.add_bytes(Request::UniqueId, as_view(wanted.unique_id));
  request.add_int32(Request::Rank, wanted.rank);
  request.add_int32(Request::Ranks, wanted.ranks);
  request.add_uint64(Request::TimeoutMs, wanted.timeout_ms);
  request.add_string(Request::Device, as_view(wanted.device));
  for (const std::string& gpu : wanted.visible_gpus) request.add_string(Request::VisibleGpus, gpu);
  request.add_uint32(Request::InStreamAbi, kInStreamAbi);
  request.add_uint32(Request::LaunchTableVersion, kLaunchTableVersion);
  request.add_uint32(Request::InStreamHindrance,
                     static_cast<std::uint32_t>(wanted.in_stream_hindrance));
  const Coding& coding = wanted.default_coding;
  request.add_uint32(Request::DefaultCodec, static_cast<std::uint32_t>(coding.codec));
  request.add_double(Request::DefaultLeastSnrDb, coding.error_class.least_snr_db);
  request.add_double(Request::DefaultMostRelativeError, coding.error_class.most_relative_error);
  request.add_uint64(Request::MostInCallBytes, wanted.most_in_call_bytes);
  request.add_uint32(Request::MostSms, wanted.most_sms);
  CreatedCommunicator created;
  ARC_RETURN_IF_ERROR(exchange<Reply>(channel_, "CreateCommunicator", message, deadline,
                                      [&created](const WireReader<Reply>& reply) {
                                        const std::uint64_t number = reply.number();
                                        switch (reply.field()) {
                                          case Reply::Member:
                                            created.member = MemberId::from_bits(number);
                                            break;
                                          case Reply::Epoch:
                                            created.epoch = number;
                                            break;
                                          case Reply::SegmentLimitBytes:
                                            created.segment_limit_bytes = number;
                                            break;
                                          case Reply::FdTicket:
                                            created.fd_ticket = number;
                                            break;
                                          case Reply::MailboxBytes:
                                            created.mailbox_bytes = number;
                                            break;
                                          case Reply::ExchangeBytes:
                                            created.exchange_bytes = number;
                                            break;
                                          case Reply::MaxTimeoutMs:
                                            created.max_timeout_ms = number;
                                            break;
                                          case Reply::LaunchTable:
                                            created.launch_table = reply.bytes();
                                            break;
                                          case Reply::WhyNoCodecs:
                                            created.why_no_codecs = reply.bytes();
                                            break;
                                        }  // or a newer daemon's field
                                      }));
  return created;
}

Status NodeControl::destroy_communicator(const SessionKey& session, MemberId member,
                                         Deadline deadline) {
  using Request = field::DestroyCommunicatorRequest;
  std::string message;
  auto request = request_of<Request>(session, message);
  request.add_uint64(Request::Member, member.bits());
  return exchange(channel_, "DestroyCommunicator", message, deadline);
}

Status NodeControl::abort_communicator(const SessionKey& session, MemberId member,
                                       std::string_view why, Deadline deadline) {
  using Request = field::AbortCommunicatorRequest;
  std::string message;
  auto request = request_of<Request>(session, message);
  request.add_uint64(Request::Member, member.bits());
  request.add_string(Request::Why, as_view(why));
  return exchange(channel_, "AbortCommunicator", message, deadline);
}

Result<SharedBuffer> NodeControl::allocate_buffer(const SessionKey& session, std::uint64_t bytes,
                                                  std::string_view device, Deadline deadline) {
  using Request = field::AllocateBufferRequest;
  std::string message;
  auto request = request_of<Request>(session, message);
  request.add_uint64(Request::Bytes, bytes);
  request.add_string(Request::Device, as_view(device));
  return buffer_call(channel_, "AllocateBuffer", message, deadline);
}

Result<SharedBuffer> NodeControl::register_buffer(const SessionKey& session,
                                                  std::uint64_t offered_fd,
                                                  std::uint64_t offset_bytes,
                                                  std::uint64_t length_bytes, Deadline deadline) {
  using Request = field::RegisterBufferRequest;
  std::string message;
  const std::uint64_t call = next_call(session, deadline);
  auto request = request_of<Request>(session, message, call);
  request.add_uint64(Request::OfferedFd, offered_fd);
  request.add_uint64(Request::OffsetBytes, offset_bytes);
  request.add_uint64(Request::LengthBytes, length_bytes);
  CallEnd end{};
  Result<SharedBuffer> made = buffer_call(channel_, "RegisterBuffer", message, deadline, &end);
  if (end == CallEnd::InDoubt) take_back(session, call);
  return made;
}

Result<SharedBuffer> NodeControl::register_gpu_buffer(const SessionKey& session,
                                                      const NewGpuBuffer& wanted,
                                                      Deadline deadline) {
  using Request = field::RegisterBufferRequest;
  std::string message;
  const std::uint64_t call = next_call(session, deadline);
  auto request = request_of<Request>(session, message, call);
  request.add_uint64(Request::OfferedFd, wanted.offered_fd);
  request.add_uint64(Request::LengthBytes, wanted.bytes);
  request.add_string(Request::Device, as_view(wanted.device));
  request.add_bytes(Request::IpcHandle, as_view(wanted.ipc_handle));
  request.add_uint64(Request::AllocationBytes, wanted.bytes);
  for (const NewGpuChunk& chunk : wanted.chunks) {
    protozero::pbf_builder<field::MemoryChunk> one(request, Request::Chunks);
    if (chunk.offered_fd != 0) {
      one.add_uint64(field::MemoryChunk::OfferedFd, chunk.offered_fd);
    } else {
      one.add_bytes(field::MemoryChunk::FabricHandle, as_view(chunk.fabric));
    }
    one.add_uint64(field::MemoryChunk::Bytes, chunk.bytes);
  }
  CallEnd end{};
  Result<SharedBuffer> made = buffer_call(channel_, "RegisterBuffer", message, deadline, &end);
  if (end == CallEnd::InDoubt) take_back(session, call);
  return made;
}

Status NodeControl::release_buffer(const SessionKey& session, BufferId buffer, Deadline deadline) {
  using Request = field::ReleaseBufferRequest;
  std::string message;
  auto request = request_of<Request>(session, message);
  request.add_uint64(Request::Buffer, buffer.bits());
  return exchange(channel_, "ReleaseBuffer", message, deadline);
}

Status NodeControl::withdraw_offers(const SessionKey& session,
                                    const std::vector<std::uint64_t>& tickets, Deadline deadline) {
  using Request = field::ReleaseBufferRequest;
  std::string message;
  auto request = request_of<Request>(session, message);
  request.add_packed_uint64(Request::OfferedFds, tickets.begin(), tickets.end());
  return exchange(channel_, "ReleaseBuffer", message, deadline);
}

Result<PlanId> NodeControl::create_plan(const SessionKey& session, const NewPlan& wanted,
                                        Deadline deadline) {
  using Request = field::CreatePlanRequest;
  using Reply = field::CreatePlanReply;
  std::string message;
  const std::uint64_t call = next_call(session, deadline);
  auto request = request_of<Request>(session, message, call);
  request.add_uint64(Request::Member, wanted.member.bits());
  request.add_uint64(Request::SendBuffer, wanted.send_buffer.bits());
  request.add_uint64(Request::SendOffsetBytes, wanted.send_offset_bytes);
  request.add_uint64(Request::RecvBuffer, wanted.recv_buffer.bits());
  request.add_uint64(Request::RecvOffsetBytes, wanted.recv_offset_bytes);
  request.add_uint64(Request::SendCount, wanted.spec.send_count);
  request.add_uint32(Request::Dtype, static_cast<std::uint32_t>(wanted.spec.dtype));
  request.add_uint32(Request::Op, static_cast<std::uint32_t>(wanted.spec.op));
  request.add_uint32(Request::Codec, static_cast<std::uint32_t>(wanted.spec.codec));
  request.add_uint64(Request::TimeoutMs, wanted.timeout_ms);
  request.add_uint64(Request::RecvCount, wanted.spec.recv_count);
  request.add_uint32(Request::Collective, static_cast<std::uint32_t>(wanted.spec.collective));
  request.add_uint32(Request::RootPlusOne, static_cast<std::uint32_t>(wanted.spec.root + 1));
  request.add_uint32(Request::Ahead, wanted.ahead);
  request.add_bool(Request::OfErrorClass, wanted.spec.codec_origin == CodecOrigin::ErrorClass);
  PlanId plan;
  const auto read = [&plan](const WireReader<Reply>& reply) {
    if (reply.field() == Reply::Plan) plan = PlanId::from_bits(reply.number());
  };
  CallEnd end{};
  const Status made = exchange<Reply>(channel_, "CreatePlan", message, deadline, read, &end);
  if (end == CallEnd::InDoubt) take_back(session, call);
  return made ? Result<PlanId>(plan) : Result<PlanId>(made.error());
}

std::uint64_t NodeControl::next_call(const SessionKey& session, Deadline deadline) {
  settle(session, Deadline::after(take_back_for_).earlier(deadline));
  return next_call_++;
}

void NodeControl::take_back(const SessionKey& session, std::uint64_t call) {
  {
    const std::lock_guard lock(mutex_);
    const auto is_of_session = [&](const InDoubt& one) { return one.session == session.id; };
    if (std::ranges::count_if(in_doubt_, is_of_session) >= kMostInDoubt)
      in_doubt_.erase(std::ranges::find_if(in_doubt_, is_of_session));
    in_doubt_.push_back({session.id, call});
  }
  settle(session, Deadline::after(take_back_for_));
}

void NodeControl::settle(const SessionKey& session, Deadline deadline) {
  std::vector<InDoubt> mine;
  {
    const std::lock_guard lock(mutex_);
    std::ranges::copy_if(in_doubt_, std::back_inserter(mine),
                         [&](const InDoubt& one) { return one.session == session.id; });
  }
  for (const InDoubt& one : mine) {
    std::string message;
    request_of<field::TakeBackRequest>(session, message, one.call);
    CallEnd end{};
    const Status said = exchange(channel_, "TakeBack", message, deadline, &end);
    if (end != CallEnd::Answered || !is_settled(said)) return;
    const std::lock_guard lock(mutex_);
    std::erase_if(in_doubt_, [&](const InDoubt& other) {
      return other.session == one.session && other.call == one.call;
    });
  }
}

Status NodeControl::destroy_plan(const SessionKey& session, PlanId plan, Deadline deadline) {
  using Request = field::DestroyPlanRequest;
  std::string message;
  auto request = request_of<Request>(session, message);
  request.add_uint64(Request::Plan, plan.bits());
  return exchange(channel_, "DestroyPlan", message, deadline);
}

Result<Described> NodeControl::describe(const SessionKey& session, MemberId member,
                                        Deadline deadline) {
  using Request = field::DescribeRequest;
  using Reply = field::DescribeReply;
  std::string message;
  auto request = request_of<Request>(session, message);
  request.add_uint64(Request::Member, member.bits());
  Described described;
  ARC_RETURN_IF_ERROR(exchange<Reply>(
      channel_, "Describe", message, deadline, [&described](const WireReader<Reply>& reply) {
        if (reply.field() == Reply::State) described.state = reply.bytes();
        if (reply.field() == Reply::Reason)
          described.reason = reason_from(static_cast<unsigned>(reply.number()));
        // int32 travels sign-extended to 64 bits.
        if (reply.field() == Reply::CulpritRank)
          described.culprit = static_cast<Rank>(static_cast<std::int64_t>(reply.number()));
        if (reply.field() == Reply::Epoch) described.epoch = reply.number();
      }));
  return described;
}

Status NodeControl::detach(const SessionKey& session, Deadline deadline) {
  std::string message;
  request_of<field::DetachRequest>(session, message);
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(in_doubt_, [&](const InDoubt& one) { return one.session == session.id; });
  }
  return exchange(channel_, "Detach", message, deadline);
}

}  // namespace arcomm::client

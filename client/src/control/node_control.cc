// Field numbers are those of proto/arcommd/v1/control.proto.
#include "client/src/control/node_control.h"

#include <cstring>
#include <utility>

#include "client/src/control/wire.h"
#include "proto/launch_table.h"
#include "proto/version.h"

namespace arcomm::client {
namespace {

std::string_view as_text(const std::array<std::byte, kTokenBytes>& token) {
  return {reinterpret_cast<const char*>(token.data()), token.size()};
}

// Every request after Attach starts with who asks.
WireWriter request_of(const SessionKey& session) {
  WireWriter reference;
  reference.number(1, session.id.bits());
  reference.bytes(2, as_text(session.token));
  WireWriter request;
  request.message(1, reference);
  return request;
}

// Calls and hands every field of the reply to `read`.
template <typename Read>
Status exchange(ControlChannel& channel, std::string_view method, WireWriter request,
                Deadline deadline, Read&& read) {
  std::string path("/arcommd.v1.NodeControl/");
  Result<std::string> reply =
      channel.call(path.append(method), std::move(request).take(), deadline);
  if (!reply) return std::move(reply).error();
  WireReader reader(*reply);
  while (reader.next()) read(reader);
  if (!reader.ok()) {
    return error(ErrorCode::Internal, Reason::Corrupt, "the daemon's answer to ", method,
                 " does not parse: are client and daemon of one version?");
  }
  return {};
}

constexpr auto kIgnore = [](const WireReader&) {};

Result<SharedBuffer> buffer_call(ControlChannel& channel, std::string_view method,
                                 WireWriter request, Deadline deadline) {
  SharedBuffer buffer;
  ARC_RETURN_IF_ERROR(
      exchange(channel, method, std::move(request), deadline, [&buffer](const WireReader& field) {
        if (field.field() == 1) buffer.buffer = BufferId::from_bits(field.number());
        if (field.field() == 2) buffer.length_bytes = field.number();
        if (field.field() == 3) buffer.fd_ticket = field.number();
      }));
  return buffer;
}

}  // namespace

bool is_gone(const Error& why) {
  return why.code == ErrorCode::NotFound || why.code == ErrorCode::Unauthenticated ||
         why.reason == Reason::DaemonLost || why.reason == Reason::NotRunning;
}

Result<Attached> NodeControl::attach(std::string_view device, std::string_view process_name,
                                     Deadline deadline) {
  WireWriter request;
  request.number(1, kRingAbiMajor);
  request.number(2, kRingAbiMinor);
  request.number(3, kVersionNumber);
  request.bytes(4, device);
  request.bytes(5, process_name);
  Attached attached;
  bool token_whole = false;
  ARC_RETURN_IF_ERROR(
      exchange(channel_, "Attach", std::move(request), deadline, [&](const WireReader& field) {
        const std::uint64_t number = field.number();
        switch (field.field()) {
          case 1:
            attached.key.id = SessionId::from_bits(number);
            break;
          case 2:
            token_whole = field.bytes().size() == kTokenBytes;
            if (token_whole)
              std::memcpy(attached.key.token.data(), field.bytes().data(), kTokenBytes);
            break;
          case 3:
            attached.fd_ticket = number;
            break;
          case 4:
            attached.daemon_version = static_cast<std::uint32_t>(number);
            break;
          case 5:
            attached.device = field.bytes();
            break;
          case 6:
            attached.default_timeout_ms = number;
            break;
          case 7:
            attached.segment_limit_bytes = number;
            break;
          case 8:
            attached.max_in_flight = static_cast<std::uint32_t>(number);
            break;
          case 9:
            attached.on_gpus = number != 0;
            break;
          case 10:
            attached.max_chunks = static_cast<std::uint32_t>(number);
            break;
          default:
            break;  // a newer daemon's field
        }
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
  WireWriter request = request_of(session);
  request.bytes(2, wanted.unique_id);
  request.number(3, static_cast<std::uint64_t>(wanted.rank));
  request.number(4, static_cast<std::uint64_t>(wanted.ranks));
  request.number(5, wanted.timeout_ms);
  request.bytes(6, wanted.device);
  for (const std::string& gpu : wanted.visible_gpus) request.bytes(7, gpu);
  request.number(8, kInStreamAbi);
  request.number(9, kLaunchTableVersion);
  request.number(10, static_cast<std::uint64_t>(wanted.in_stream_hindrance));
  CreatedCommunicator created;
  ARC_RETURN_IF_ERROR(exchange(channel_, "CreateCommunicator", std::move(request), deadline,
                               [&created](const WireReader& field) {
                                 if (field.field() == 1)
                                   created.member = MemberId::from_bits(field.number());
                                 if (field.field() == 2) created.epoch = field.number();
                                 if (field.field() == 4)
                                   created.segment_limit_bytes = field.number();
                                 if (field.field() == 5) created.fd_ticket = field.number();
                                 if (field.field() == 6) created.mailbox_bytes = field.number();
                                 if (field.field() == 7) created.exchange_bytes = field.number();
                                 if (field.field() == 10) created.max_timeout_ms = field.number();
                                 if (field.field() == 12) created.launch_table = field.bytes();
                               }));
  return created;
}

Status NodeControl::destroy_communicator(const SessionKey& session, MemberId member,
                                         Deadline deadline) {
  WireWriter request = request_of(session);
  request.number(2, member.bits());
  return exchange(channel_, "DestroyCommunicator", std::move(request), deadline, kIgnore);
}

Status NodeControl::abort_communicator(const SessionKey& session, MemberId member,
                                       std::string_view why, Deadline deadline) {
  WireWriter request = request_of(session);
  request.number(2, member.bits());
  request.bytes(3, why);
  return exchange(channel_, "AbortCommunicator", std::move(request), deadline, kIgnore);
}

Result<SharedBuffer> NodeControl::allocate_buffer(const SessionKey& session, std::uint64_t bytes,
                                                  std::string_view device, Deadline deadline) {
  WireWriter request = request_of(session);
  request.number(2, bytes);
  request.bytes(3, device);
  return buffer_call(channel_, "AllocateBuffer", std::move(request), deadline);
}

Result<SharedBuffer> NodeControl::register_buffer(const SessionKey& session,
                                                  std::uint64_t offered_fd,
                                                  std::uint64_t offset_bytes,
                                                  std::uint64_t length_bytes, Deadline deadline) {
  WireWriter request = request_of(session);
  request.number(2, offered_fd);
  request.number(3, offset_bytes);
  request.number(4, length_bytes);
  return buffer_call(channel_, "RegisterBuffer", std::move(request), deadline);
}

Result<SharedBuffer> NodeControl::register_gpu_buffer(const SessionKey& session,
                                                      const NewGpuBuffer& wanted,
                                                      Deadline deadline) {
  WireWriter request = request_of(session);
  request.number(2, wanted.offered_fd);
  request.number(4, wanted.bytes);
  request.bytes(5, wanted.device);
  request.bytes(6, wanted.ipc_handle);
  request.number(7, wanted.bytes);
  for (const NewGpuChunk& chunk : wanted.chunks) {
    WireWriter one;
    one.number(1, chunk.offered_fd);
    if (chunk.offered_fd == 0) {
      one.bytes(2, {reinterpret_cast<const char*>(chunk.fabric.data()), chunk.fabric.size()});
    }
    one.number(3, chunk.bytes);
    request.message(8, one);
  }
  return buffer_call(channel_, "RegisterBuffer", std::move(request), deadline);
}

Status NodeControl::release_buffer(const SessionKey& session, BufferId buffer, Deadline deadline) {
  WireWriter request = request_of(session);
  request.number(2, buffer.bits());
  return exchange(channel_, "ReleaseBuffer", std::move(request), deadline, kIgnore);
}

Status NodeControl::withdraw_offers(const SessionKey& session,
                                    const std::vector<std::uint64_t>& tickets, Deadline deadline) {
  WireWriter request = request_of(session);
  for (const std::uint64_t ticket : tickets) request.number(3, ticket);
  return exchange(channel_, "ReleaseBuffer", std::move(request), deadline, kIgnore);
}

Result<PlanId> NodeControl::create_plan(const SessionKey& session, const NewPlan& wanted,
                                        Deadline deadline) {
  WireWriter request = request_of(session);
  request.number(2, wanted.member.bits());
  request.number(3, wanted.send_buffer.bits());
  request.number(4, wanted.send_offset_bytes);
  request.number(5, wanted.recv_buffer.bits());
  request.number(6, wanted.recv_offset_bytes);
  request.number(7, wanted.count);
  request.number(8, static_cast<std::uint64_t>(wanted.dtype));
  request.number(9, static_cast<std::uint64_t>(wanted.op));
  request.number(11, wanted.timeout_ms);
  PlanId plan;
  ARC_RETURN_IF_ERROR(exchange(channel_, "CreatePlan", std::move(request), deadline,
                               [&plan](const WireReader& field) {
                                 if (field.field() == 1) plan = PlanId::from_bits(field.number());
                               }));
  return plan;
}

Status NodeControl::destroy_plan(const SessionKey& session, PlanId plan, Deadline deadline) {
  WireWriter request = request_of(session);
  request.number(2, plan.bits());
  return exchange(channel_, "DestroyPlan", std::move(request), deadline, kIgnore);
}

Result<Described> NodeControl::describe(const SessionKey& session, MemberId member,
                                        Deadline deadline) {
  WireWriter request = request_of(session);
  request.number(2, member.bits());
  Described described;
  ARC_RETURN_IF_ERROR(exchange(
      channel_, "Describe", std::move(request), deadline, [&described](const WireReader& field) {
        if (field.field() == 1) described.state = field.bytes();
        if (field.field() == 2)
          described.reason = reason_from(static_cast<unsigned>(field.number()));
        // int32 travels sign-extended to 64 bits.
        if (field.field() == 3)
          described.culprit = static_cast<Rank>(static_cast<std::int64_t>(field.number()));
        if (field.field() == 4) described.epoch = field.number();
      }));
  return described;
}

Status NodeControl::detach(const SessionKey& session, Deadline deadline) {
  return exchange(channel_, "Detach", request_of(session), deadline, kIgnore);
}

}  // namespace arcomm::client

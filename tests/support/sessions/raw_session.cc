#include "tests/support/sessions/raw_session.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "proto/arcommd/v1/control.grpc.pb.h"
#include "proto/fd_message.h"
#include "proto/gpu/launch_table.h"
#include "proto/ring/doorbell.h"
#include "tests/support/sessions/descriptor_socket.h"

namespace arcomm::support {
namespace {

using Clock = std::chrono::steady_clock;

Error from_grpc(const grpc::Status& status, const grpc::ClientContext& context) {
  Error failure = error(error_code_from(static_cast<unsigned>(status.error_code())), Reason::None,
                        status.error_message());
  const auto& trailing = context.GetServerTrailingMetadata();
  if (const auto found = trailing.find("arcomm-reason"); found != trailing.end()) {
    failure.reason = reason_from(static_cast<unsigned>(std::strtoul(
        std::string(found->second.data(), found->second.size()).c_str(), nullptr, 10)));
  }
  return failure;
}

std::shared_ptr<grpc::Channel> own_channel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
                   1);  // a connection, and so a peer, of its own
  arguments.SetMaxSendMessageSize(-1);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

struct RawSession::Parts {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<arcommd::v1::NodeControl::Stub> control;
  arcommd::v1::AttachReply attached;
  DescriptorSocket descriptors;
  UniqueFd segment_copy;
  std::optional<ring::Segment> segment;
  UniqueFd doorbell;
  std::optional<ring::Producer<ring::WorkRequest>> requests;
  std::optional<ring::Consumer<ring::Completion>> completions;
  std::vector<std::pair<void*, std::uint64_t>> mappings;

  void name(arcommd::v1::SessionRef* ref) const {
    ref->set_session(attached.session());
    ref->set_session_token(attached.session_token());
  }
  template <typename Request, typename Answer>
  Status call(grpc::Status (arcommd::v1::NodeControl::Stub::*method)(grpc::ClientContext*,
                                                                     const Request&, Answer*),
              const Request& request, Answer* answer,
              milliseconds patience = std::chrono::seconds(20)) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + patience);
    const grpc::Status status = (control.get()->*method)(&context, request, answer);
    if (!status.ok()) return from_grpc(status, context);
    return {};
  }
  // table_version: 0 as of a library that reads no launch table.
  Result<arcommd::v1::CreateCommunicatorReply> join(const std::string& unique_id, Rank rank,
                                                    int ranks, milliseconds timeout,
                                                    std::uint32_t table_version) {
    arcommd::v1::CreateCommunicatorRequest request;
    name(request.mutable_session());
    request.set_unique_id(unique_id);
    request.set_rank(rank);
    request.set_ranks(ranks);
    request.set_timeout_ms(static_cast<std::uint64_t>(timeout.count()));
    request.set_launch_table_version(table_version);
    arcommd::v1::CreateCommunicatorReply reply;
    ARC_RETURN_IF_ERROR(call(&arcommd::v1::NodeControl::Stub::CreateCommunicator, request, &reply));
    return reply;
  }
  // The one descriptor of a ticket, mapped for as long as the session is there.
  Result<void*> map(std::uint64_t ticket, std::uint64_t bytes) {
    Result<std::vector<UniqueFd>> fds = descriptors.fetch(ticket);
    if (!fds) return std::move(fds).error();
    if (fds->size() != 1)
      return error(ErrorCode::Internal, Reason::Bug, "a ticket for memory gave ", fds->size(),
                   " descriptors");
    void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, (*fds)[0].get(), 0);
    if (base == MAP_FAILED)
      return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, std::strerror(errno));
    mappings.emplace_back(base, bytes);
    return base;
  }
};

RawSession::RawSession(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

RawSession::~RawSession() {
  for (const auto& [base, bytes] : parts_->mappings) ::munmap(base, bytes);
}

Result<std::unique_ptr<RawSession>> RawSession::attach(const std::string& runtime_dir,
                                                       Options options) {
  auto parts = std::make_unique<Parts>();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
                   1);  // a connection, and so a peer, of its own
  parts->channel = grpc::CreateCustomChannel("unix:" + runtime_dir + "/client.sock",
                                             grpc::InsecureChannelCredentials(), arguments);
  parts->control = arcommd::v1::NodeControl::NewStub(parts->channel);
  arcommd::v1::AttachRequest request;
  request.set_ring_abi_major(options.ring_abi_major);
  request.set_ring_abi_minor(options.ring_abi_minor);
  request.set_client_version(kVersionNumber);
  request.set_device(options.device);
  request.set_process_name(options.process_name);
  ARC_RETURN_IF_ERROR(
      parts->call(&arcommd::v1::NodeControl::Stub::Attach, request, &parts->attached));

  Result<DescriptorSocket> descriptors = DescriptorSocket::connect(runtime_dir + "/fd.sock");
  if (!descriptors) return std::move(descriptors).error();
  parts->descriptors = std::move(*descriptors);
  FdMessage hello;
  hello.kind = FdMessageKind::Hello;
  hello.session = parts->attached.session();
  std::memcpy(hello.token.data(), parts->attached.session_token().data(),
              std::min(hello.token.size(), parts->attached.session_token().size()));
  Result<FdMessage> answered = parts->descriptors.ask(hello);
  if (!answered) return std::move(answered).error();
  Result<std::vector<UniqueFd>> fds = parts->descriptors.fetch(parts->attached.fd_ticket());
  if (!fds) return std::move(fds).error();
  if (fds->size() != 2)
    return error(ErrorCode::Internal, Reason::Bug, "Attach gave ", fds->size(), " descriptors");
  parts->segment_copy = duplicate((*fds)[0].get());
  Result<ring::Segment> segment = ring::Segment::open(std::move((*fds)[0]));
  if (!segment) return std::move(segment).error();
  parts->segment.emplace(std::move(*segment));
  parts->doorbell = std::move((*fds)[1]);
  parts->requests.emplace(parts->segment->requests());
  parts->completions.emplace(parts->segment->completions());
  return std::unique_ptr<RawSession>(new RawSession(std::move(parts)));
}

Result<MemberId> RawSession::create_communicator(const std::string& unique_id, Rank rank, int ranks,
                                                 milliseconds timeout) {
  const auto reply = parts_->join(unique_id, rank, ranks, timeout, 0);
  if (!reply) return reply.error();
  return MemberId::from_bits(reply->member());
}

Result<RawSession::InCallSeat> RawSession::join_in_call(const std::string& unique_id, Rank rank,
                                                        int ranks, milliseconds timeout) {
  const auto reply = parts_->join(unique_id, rank, ranks, timeout, kLaunchTableVersion);
  if (!reply) return reply.error();
  InCallSeat seat{.member = MemberId::from_bits(reply->member())};
  if (reply->exchange_bytes() == 0) return seat;
  const Result<void*> memory = parts_->map(reply->fd_ticket(), reply->exchange_bytes());
  if (!memory) return memory.error();
  seat.memory = *memory;
  seat.bytes = reply->exchange_bytes();
  return seat;
}

Status RawSession::join_with_gpus(std::size_t gpus) {
  arcommd::v1::CreateCommunicatorRequest request;
  parts_->name(request.mutable_session());
  request.set_unique_id(std::string(128, 'g'));
  request.set_ranks(2);
  request.set_timeout_ms(50);
  for (std::size_t i = 0; i < gpus; ++i) request.add_visible_gpus();
  arcommd::v1::CreateCommunicatorReply reply;
  return parts_->call(&arcommd::v1::NodeControl::Stub::CreateCommunicator, request, &reply);
}

Status RawSession::register_pieces(std::size_t pieces) {
  arcommd::v1::RegisterBufferRequest request;
  parts_->name(request.mutable_session());
  for (std::size_t i = 0; i < pieces; ++i) request.add_chunks();
  arcommd::v1::BufferReply reply;
  return parts_->call(&arcommd::v1::NodeControl::Stub::RegisterBuffer, request, &reply);
}

Status RawSession::release_offers(std::size_t offers) {
  arcommd::v1::ReleaseBufferRequest request;
  parts_->name(request.mutable_session());
  for (std::size_t i = 0; i < offers; ++i) request.add_offered_fds(i % 100);
  arcommd::v1::Empty reply;
  return parts_->call(&arcommd::v1::NodeControl::Stub::ReleaseBuffer, request, &reply);
}

Result<MemberId> RawSession::create_lone_communicator() {
  std::random_device random;
  std::string id(128, '\0');
  for (char& byte : id) byte = static_cast<char>(random());
  return create_communicator(id, 0, 1, milliseconds(10000));
}

Result<MemberId> RawSession::create_communicator_with(ClientProcess& peer) {
  const std::string hex = peer.expect_ok("id");
  std::string id;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    id.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  peer.tell("comm c0 2 " + hex + " 1");
  Result<MemberId> member = create_communicator(id, 0, 2, milliseconds(20000));
  const Reply joined = peer.hear();
  if (member && !joined.ok())
    return error(ErrorCode::Unknown, Reason::None, "the peer did not join: ", joined.to_string());
  return member;
}

Result<RawSession::Buffer> RawSession::allocate(std::uint64_t bytes) {
  arcommd::v1::AllocateBufferRequest request;
  parts_->name(request.mutable_session());
  request.set_bytes(bytes);
  arcommd::v1::BufferReply reply;
  ARC_RETURN_IF_ERROR(
      parts_->call(&arcommd::v1::NodeControl::Stub::AllocateBuffer, request, &reply));
  const Result<void*> base = parts_->map(reply.fd_ticket(), reply.length_bytes());
  if (!base) return base.error();
  return Buffer{BufferId::from_bits(reply.buffer()), *base, reply.length_bytes()};
}

Status RawSession::allocate_unfetched(std::uint64_t bytes, milliseconds patience) {
  arcommd::v1::AllocateBufferRequest request;
  parts_->name(request.mutable_session());
  request.set_bytes(bytes);
  arcommd::v1::BufferReply reply;
  return parts_->call(&arcommd::v1::NodeControl::Stub::AllocateBuffer, request, &reply, patience);
}

Result<RawSession::Buffer> RawSession::register_memory(int memory, std::uint64_t offset,
                                                       std::uint64_t bytes, std::uint64_t call) {
  FdMessage offer;
  offer.kind = FdMessageKind::Offer;
  Result<FdMessage> answer = parts_->descriptors.ask(offer, memory);
  if (!answer) return std::move(answer).error();
  arcommd::v1::RegisterBufferRequest request;
  parts_->name(request.mutable_session());
  request.mutable_session()->set_call(call);
  request.set_offered_fd(answer->ticket);
  request.set_offset_bytes(offset);
  request.set_length_bytes(bytes);
  arcommd::v1::BufferReply reply;
  ARC_RETURN_IF_ERROR(
      parts_->call(&arcommd::v1::NodeControl::Stub::RegisterBuffer, request, &reply));
  return Buffer{BufferId::from_bits(reply.buffer()), nullptr, bytes};
}

Status RawSession::take_back(std::uint64_t call) {
  arcommd::v1::TakeBackRequest request;
  parts_->name(request.mutable_session());
  request.mutable_session()->set_call(call);
  arcommd::v1::Empty reply;
  return parts_->call(&arcommd::v1::NodeControl::Stub::TakeBack, request, &reply);
}

Status RawSession::release(BufferId buffer) {
  arcommd::v1::ReleaseBufferRequest request;
  parts_->name(request.mutable_session());
  request.set_buffer(buffer.bits());
  arcommd::v1::Empty reply;
  return parts_->call(&arcommd::v1::NodeControl::Stub::ReleaseBuffer, request, &reply);
}

Status RawSession::create_plan(MemberId member, BufferId buffer, std::uint64_t count) {
  arcommd::v1::CreatePlanRequest request;
  parts_->name(request.mutable_session());
  request.set_member(member.bits());
  request.set_send_buffer(buffer.bits());
  request.set_recv_buffer(buffer.bits());
  request.set_send_count(count);
  request.set_recv_count(count);
  request.set_dtype(static_cast<std::uint32_t>(DType::Float32));
  request.set_op(static_cast<std::uint32_t>(ReduceOp::Sum));
  arcommd::v1::CreatePlanReply reply;
  return parts_->call(&arcommd::v1::NodeControl::Stub::CreatePlan, request, &reply);
}

Status RawSession::abort(MemberId member, const std::string& why) {
  arcommd::v1::AbortCommunicatorRequest request;
  parts_->name(request.mutable_session());
  request.set_member(member.bits());
  request.set_why(why);
  arcommd::v1::Empty reply;
  return parts_->call(&arcommd::v1::NodeControl::Stub::AbortCommunicator, request, &reply);
}

ring::ControlLines& RawSession::control() {
  return parts_->segment->control();
}
ring::WorkRequest* RawSession::request_slots() {
  return parts_->segment->requests().slots;
}
ring::Completion* RawSession::completion_slots() {
  return parts_->segment->completions().slots;
}
std::uint32_t RawSession::slots() const {
  return parts_->segment->slots();
}
int RawSession::segment_fd() const {
  return parts_->segment_copy.get();
}
std::uint64_t RawSession::session_bits() const {
  return parts_->attached.session();
}
std::uint64_t RawSession::segment_limit_bytes() const {
  return parts_->attached.segment_limit_bytes();
}
std::uint64_t RawSession::position() const {
  return parts_->requests->position();
}

ring::Push RawSession::submit(const ring::WorkRequest& slot) {
  const ring::Push pushed = parts_->requests->push(slot);
  ring_doorbell();
  return pushed;
}

void RawSession::stamp_next_slot(std::uint64_t stamp) {
  std::atomic_ref(request_slots()[position() & (slots() - 1)].stamp)
      .store(stamp, std::memory_order_release);
}

void RawSession::ring_doorbell() {
  ring::EventDoorbell(control().requests.consumer_sleeps, parts_->doorbell.get()).ring();
  // Whatever the flag says: a liar's flag may be wrong.
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(parts_->doorbell.get(), &one, sizeof(one));
}

std::optional<ring::Completion> RawSession::next_completion(milliseconds deadline) {
  const auto end = Clock::now() + deadline;
  ring::Completion completion;
  while (parts_->completions->pop(completion) != ring::Pop::Done) {
    if (Clock::now() >= end) return std::nullopt;
    ::usleep(200);
  }
  return completion;
}

ring::SessionState RawSession::wait_state(milliseconds deadline) {
  const auto end = Clock::now() + deadline;
  for (;;) {
    const auto state =
        static_cast<ring::SessionState>(control().session_state.load(std::memory_order_acquire));
    if (state != ring::SessionState::Open || Clock::now() >= end) return state;
    ::usleep(500);
  }
}

Reason RawSession::state_reason() {
  return reason_from(control().session_reason.load(std::memory_order_acquire));
}

Error admin_status_over(const std::string& socket) {
  const auto stub = arcommd::v1::NodeAdmin::NewStub(own_channel(socket));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  arcommd::v1::StatusReply reply;
  return from_grpc(stub->GetStatus(&context, {}, &reply), context);
}

Error oversized_attach(const std::string& runtime_dir, std::size_t bytes) {
  const auto stub = arcommd::v1::NodeControl::NewStub(own_channel(runtime_dir + "/client.sock"));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  arcommd::v1::AttachRequest request;
  request.set_process_name(std::string(bytes, 'x'));
  arcommd::v1::AttachReply reply;
  return from_grpc(stub->Attach(&context, request, &reply), context);
}

ring::WorkRequest valid_request(MemberId member, std::uint64_t seq, BufferId buffer,
                                std::uint64_t count) {
  ring::WorkRequest request;
  request.ticket = 1000 + seq;
  request.member = member.bits();
  request.seq = seq;
  request.dtype = static_cast<std::uint8_t>(DType::Float32);
  request.op = static_cast<std::uint8_t>(ReduceOp::Sum);
  request.send_buffer = request.recv_buffer = buffer.bits();
  request.send_count = request.recv_count = count;
  request.timeout_ns = 5'000'000'000;
  return request;
}

}  // namespace arcomm::support

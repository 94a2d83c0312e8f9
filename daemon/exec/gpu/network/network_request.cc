#include "daemon/exec/gpu/network/network_request.h"

#include <cinttypes>
#include <span>
#include <utility>

#include "daemon/exec/gpu/group/gpu_groups.h"
#include "daemon/session/session.h"

namespace arcomm {
namespace {

const void* at_gpu(const BufferRegistry& buffers, const Operation& operation, BufferId id,
                   const std::byte* address, int ordinal) {
  const Buffer& buffer = *buffers.find(operation.session->id(), id);
  return buffer.base_on(ordinal) + (address - buffer.base());
}

}  // namespace

std::uint64_t remaining_ns(const Arrival& arrival, std::uint64_t now_ns) {
  return arrival.deadline_ns > now_ns ? arrival.deadline_ns - now_ns : 0;
}

std::uint64_t* done_word(const GpuMember& member, int ordinal) {
  auto* const mailbox = reinterpret_cast<DeviceMailbox*>(member.mailbox.data_on(ordinal));
  return &mailbox->paths[static_cast<int>(LaunchPath::Launched)].done;
}

std::uint32_t number_of(const Operation& operation) {
  return static_cast<std::uint32_t>(operation.ticket);
}

Status tell_all_done(const GpuGroup& group, const Arrival& arrival) {
  Status all_told;
  for (std::size_t seat = 0; seat < group.members.size(); ++seat) {
    const GpuMember& member = group.members[seat];
    Status told =
        member.launcher().store(done_word(member, member.engine->ordinal()),
                                to_word(Done{.number = number_of(*arrival.operations[seat])}));
    if (all_told) all_told = std::move(told);
  }
  return all_told;
}

Failure failure_of_kernel(const Done& verdict, const Communicator& communicator,
                          std::uint64_t seq) {
  ErrorCode code = error_code_from(verdict.code);
  if (code == ErrorCode::Ok) code = ErrorCode::Internal;
  Rank culprit = kNoRank;
  for (Rank rank = 0; rank < communicator.ranks() && culprit == kNoRank; ++rank) {
    if (std::cmp_equal(communicator.world.place(rank).node, verdict.culprit_rank)) culprit = rank;
  }
  return make_failure(code, reason_from(verdict.reason), culprit,
                      "seq %" PRIu64 ": this node's kernel waited for data of rank %d's node", seq,
                      culprit);
}

Status launch_between_nodes(const Communicator& communicator, const BufferRegistry& buffers,
                            NetworkFifos& fifos, std::uint64_t now_ns) {
  const GpuGroup& group = *gpus_of(communicator);
  const Arrival& arrival = *communicator.board.head();
  const GpuMember& first = group.members.front();
  const int ordinal = first.engine->ordinal();
  std::array<NetworkFifos::Seat, kMaxGpuRanks> seats;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const Operation& called = *arrival.operations[i];
    seats[i] = {
        .send = at_gpu(buffers, called, called.send_buffer, called.send, ordinal),
        .recv =
            const_cast<void*>(at_gpu(buffers, called, called.recv_buffer, called.recv, ordinal)),
        .waiter = {.done = done_word(group.members[i], ordinal), .number = number_of(called)}};
  }
  return fifos.launch(first, {.seats = std::span(seats).first(group.members.size()),
                              .called = arrival.signature,
                              .divisor = static_cast<std::uint32_t>(communicator.ranks()),
                              .timeout_ns = remaining_ns(arrival, now_ns) + kNetworkGraceNs,
                              .number = seats[0].waiter.number});
}

}  // namespace arcomm

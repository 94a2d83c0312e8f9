#include "daemon/exec/net/operations/direct_operation.h"

#include <algorithm>
#include <utility>

#include "daemon/plan/network/network_payload.h"
#include "daemon/plan/network/network_shards.h"

namespace arcomm {

Status DirectOperation::begin(const NetworkRequest& request) {
  seats_.begin(request.communicator, request.arrival, request.question, request.choice.partials);
  seq_ = request.arrival.seq;
  if (!seats_.is_input()) ARC_RETURN_IF_ERROR(group_.make_rooms());
  if (seats_.is_coded()) ARC_RETURN_IF_ERROR(group_.make_result_rooms());
  const NetworkShards shards(request.question);
  chunk_elements_ = payload_chunk(request.question, request.choice.partials, shards.most_elements(),
                                  group_.slot_bytes());
  std::uint64_t chunks = 0;
  for (std::uint32_t i = 0; i < group_.nodes(); ++i) {
    Node& node = nodes_[i] = {};
    node.shard = shards.of(i);
    node.chunks = chunks_in(node.shard, chunk_elements_);
    node.first_chunk = chunks;
    chunks += node.chunks;
  }
  reduced_ = rooms_used_ = 0;
  room_for_.fill(group_.here());
  return region_.begin(group_, seq_, seats_.result(), chunks);
}

ElementRange DirectOperation::range(const Node& node, std::uint64_t chunk) const {
  return chunk_of(node.shard, chunk_elements_, chunk);
}

bool DirectOperation::advance() {
  bool has_computed = false;
  bool moved = put();  // what others wait for comes first
  moved |= send(has_computed);
  if (!has_computed && reduce()) {
    moved = has_computed = true;
    put();
  }
  if (!has_computed) moved |= place(has_computed);
  group_.give_credits();
  return moved;
}

bool DirectOperation::send(bool& has_computed) {
  bool moved = false;
  // Each node sends to the one behind it first, so that they do not all send to one.
  for (std::uint32_t i = 1; i < group_.nodes() && !has_computed; ++i) {
    const std::uint32_t node = (group_.here() + i) % group_.nodes();
    while (nodes_[node].sent < nodes_[node].chunks && !has_computed && send_chunk(node)) {
      moved = true;
      has_computed = !seats_.is_input();
    }
  }
  return moved;
}

bool DirectOperation::send_chunk(std::uint32_t node) {
  if (!group_.may_send(node)) return false;
  const ElementRange part = range(nodes_[node], nodes_[node].sent);
  Loans& loans = group_.partials();
  std::uint64_t place = nodes_[node].sent;
  std::byte* room = nullptr;
  if (seats_.is_input()) {
    if (!loans.is_back(node, place)) return false;
  } else {
    place = rooms_used_;
    if (!loans.is_back(room_for_[place % NodeGroup::kRooms], place)) return false;
    room = group_.room(place);
  }
  const std::span<const std::byte> payload = seats_.partial(part.first, part.last, room);
  if (!group_.send(node, seq_, payload, loans.of(node, place))) return false;
  if (room != nullptr) room_for_[rooms_used_++ % NodeGroup::kRooms] = node;
  ++nodes_[node].sent;
  return true;
}

bool DirectOperation::reduce() {
  const Node& own = nodes_[group_.here()];
  if (reduced_ == own.chunks) return false;
  bool is_there = true;
  group_.for_each_peer([&](std::uint32_t node) {
    inputs_[node] = group_.arrived(node);
    is_there &= inputs_[node] != nullptr;
  });
  if (!is_there || (seats_.is_coded() && !result_room_is_free())) return false;
  const ElementRange part = range(own, reduced_);
  std::byte* const room = seats_.is_input() ? nullptr : group_.scratch();
  inputs_[group_.here()] = seats_.partial(part.first, part.last, room).data();
  if (seats_.is_coded()) {
    seats_.finish_coded(part.first, part.last, inputs_, group_.result_room(reduced_));
  } else {
    seats_.finish(part.first, part.last, inputs_);
  }
  group_.for_each_peer([&](std::uint32_t node) {
    group_.use_up(node);
    group_.notes().arrived(seats_.bytes_of_partial(part.size()));
  });
  ++reduced_;
  return true;
}

// Its last chunk's blocks have left to all.
bool DirectOperation::result_room_is_free() const {
  bool is_free = true;
  group_.for_each_peer([&](std::uint32_t node) {
    is_free &= reduced_ < nodes_[node].put + Loans::kAhead;
    is_free &= group_.results().is_back(node, reduced_);
  });
  return is_free;
}

std::span<const std::byte> DirectOperation::payload_of(ElementRange part,
                                                       std::uint64_t chunk) const {
  if (seats_.codes_result(part.size()))
    return {group_.result_room(chunk), seats_.bytes_of_result(part.size())};
  return seats_.result().subspan(part.first * seats_.element_bytes(),
                                 part.size() * seats_.element_bytes());
}

bool DirectOperation::put() {
  bool moved = false;
  const Node& own = nodes_[group_.here()];
  group_.for_each_peer([&](std::uint32_t i) {
    Node& node = nodes_[i];
    while (node.put < reduced_ && group_.results().is_back(i, node.put)) {
      const ElementRange part = range(own, node.put);
      if (!group_.put(i, seq_, part.first * seats_.element_bytes(),
                      static_cast<std::uint32_t>(own.first_chunk + node.put),
                      payload_of(part, node.put), group_.results().of(i, node.put)))
        return;
      ++node.put;
      moved = true;
    }
  });
  return moved;
}

bool DirectOperation::place(bool& has_computed) {
  bool moved = false;
  group_.for_each_peer([&](std::uint32_t i) {
    Node& node = nodes_[i];
    while (!has_computed && node.placed < node.chunks &&
           region_.has(node.first_chunk + node.placed)) {
      const ElementRange part = range(node, node.placed);
      const std::uint64_t bytes = seats_.bytes_of_result(part.size());
      group_.notes().arrived(bytes);
      if (seats_.codes_result(part.size())) {
        seats_.spread_coded_in_place(part.first, part.last, group_.scratch());
        has_computed = true;
      } else if (seats_.has_others()) {
        seats_.spread(part.first, part.last);
        has_computed = true;
      }
      ++node.placed;
      moved = true;
    }
  });
  return moved;
}

bool DirectOperation::is_done() const {
  const Node& own = nodes_[group_.here()];
  if (reduced_ != own.chunks) return false;
  for (std::uint32_t i = 0; i < group_.nodes(); ++i) {
    const Node& node = nodes_[i];
    if (i == group_.here()) continue;
    if (node.sent != node.chunks || node.put != reduced_ || node.placed != node.chunks)
      return false;
  }
  return true;
}

bool DirectOperation::let_go() {
  const bool is_removed = region_.end();
  return is_removed && group_.partials().are_back() && group_.results().are_back();
}

}  // namespace arcomm

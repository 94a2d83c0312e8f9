// What a member's library writes down at each call, before the call is put on a stream: so that the
// daemon can tell ranks that have called different operations where these took different launch
// paths and would never meet. One for each of the last kCallNotes operations of a path, at the
// place of its number. Written by one thread of the client at a time, read by the daemon at any
// time; whatever a client writes here, only its own communicator can end by it.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

#include "proto/operation_spec.h"

namespace arcomm {

inline constexpr std::uint32_t kCallNotes = 512;  // far more than a stream runs behind its host
inline constexpr std::uint32_t kNotedPaths = 3;   // LaunchPath's but Alone

struct CallNote {
  std::uint32_t number = 0;  // of the operation on its path; 0 while it is written
  // Of the operation among all that the member has called, from 1 on: the same operation on every
  // rank. 0: not known, as graphs have called others.
  std::uint32_t call = 0;
  std::uint64_t send_count = 0, recv_count = 0;
  std::uint8_t collective = 0, dtype = 0, op = 0, codec = 0;
  std::int32_t root = kNoRank;
};
static_assert(sizeof(CallNote) == 32 && std::is_standard_layout_v<CallNote>);

struct NotedCall {
  std::uint32_t call = 0;
  OperationSpec spec;
};

void write_note(CallNote& place, std::uint32_t number, const NotedCall& noted);
// Nothing where the place holds another operation, or what makes no sense.
std::optional<NotedCall> read_note(const CallNote& place, std::uint32_t number);

}  // namespace arcomm

#include "proto/gpu/call_note.h"

namespace arcomm {

void write_note(CallNote& place, std::uint32_t number, const NotedCall& noted) {
  const OperationSpec& spec = noted.spec;
  __atomic_store_n(&place.number, 0U, __ATOMIC_RELAXED);
  // With read_note()'s: a reader of what follows sees the 0.
  __atomic_thread_fence(__ATOMIC_RELEASE);
  __atomic_store_n(&place.call, noted.call, __ATOMIC_RELAXED);
  __atomic_store_n(&place.send_count, spec.send_count, __ATOMIC_RELAXED);
  __atomic_store_n(&place.recv_count, spec.recv_count, __ATOMIC_RELAXED);
  __atomic_store_n(&place.collective, static_cast<std::uint8_t>(spec.collective), __ATOMIC_RELAXED);
  __atomic_store_n(&place.dtype, static_cast<std::uint8_t>(spec.dtype), __ATOMIC_RELAXED);
  __atomic_store_n(&place.op, static_cast<std::uint8_t>(spec.op), __ATOMIC_RELAXED);
  __atomic_store_n(&place.codec, codec_byte_of(spec), __ATOMIC_RELAXED);
  __atomic_store_n(&place.root, spec.root, __ATOMIC_RELAXED);
  __atomic_store_n(&place.number, number, __ATOMIC_RELEASE);  // pairs with read_note()'s acquire
}

std::optional<NotedCall> read_note(const CallNote& place, std::uint32_t number) {
  if (number == 0 || __atomic_load_n(&place.number, __ATOMIC_ACQUIRE) != number)
    return std::nullopt;
  const std::uint8_t codec = __atomic_load_n(&place.codec, __ATOMIC_RELAXED);
  NotedCall noted;
  noted.call = __atomic_load_n(&place.call, __ATOMIC_RELAXED);
  noted.spec = {
      .send_count = __atomic_load_n(&place.send_count, __ATOMIC_RELAXED),
      .recv_count = __atomic_load_n(&place.recv_count, __ATOMIC_RELAXED),
      .collective = static_cast<Collective>(__atomic_load_n(&place.collective, __ATOMIC_RELAXED)),
      .dtype = static_cast<DType>(__atomic_load_n(&place.dtype, __ATOMIC_RELAXED)),
      .op = static_cast<ReduceOp>(__atomic_load_n(&place.op, __ATOMIC_RELAXED)),
      .codec = codec_in(codec),
      .codec_origin = codec_origin_in(codec),
      .root = __atomic_load_n(&place.root, __ATOMIC_RELAXED)};
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  const bool is_whole = __atomic_load_n(&place.number, __ATOMIC_RELAXED) == number;
  if (!is_whole || noted.call == 0 || find_fault(noted.spec) != nullptr) return std::nullopt;
  return noted;
}

}  // namespace arcomm

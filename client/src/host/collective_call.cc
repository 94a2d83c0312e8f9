#include "client/src/host/collective_call.h"

namespace arcomm::client {
namespace {

Error bad(const auto&... parts) {
  return error(ErrorCode::InvalidArgument, Reason::BadValue, parts...);
}

Status check_pointer(const char* name, const void* pointer, std::uint64_t bytes,
                     std::size_t element) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (pointer == nullptr) return bad(name, " is null although count is not 0");
  if (address % element != 0) {
    return bad(name, " is ", pointer, ", which is not aligned to the element's ", element,
               " bytes");
  }
  if (bytes > UINTPTR_MAX - address)
    return bad(name, " + ", bytes, " bytes passes the end of memory");
  return {};
}

}  // namespace

Status check_call(const void* send, const void* recv, std::uint64_t count, int dtype, int op,
                  const void* stream) {
  if (stream != nullptr) {
    return bad("stream is ", stream, ": on the host device there are no streams, pass NULL");
  }
  if (dtype < 0 || static_cast<unsigned>(dtype) >= kDTypes) {
    return bad("dtype is ", dtype, "; the types are 0 (float16) to ", kDTypes - 1, " (uint64)");
  }
  if (op < 0 || static_cast<unsigned>(op) >= kReduceOps) {
    return bad("op is ", op, "; the operations are 0 (sum) to ", kReduceOps - 1, " (avg)");
  }
  if (count == 0) return {};
  const std::size_t element = size_of(static_cast<DType>(dtype));
  if (count > PTRDIFF_MAX / element) {
    return bad("count ", count, " of ", element, "-byte elements is more than memory can hold");
  }
  const std::uint64_t bytes = count * element;
  ARC_RETURN_IF_ERROR(check_pointer("send", send, bytes, element));
  ARC_RETURN_IF_ERROR(check_pointer("recv", recv, bytes, element));
  const auto from = reinterpret_cast<std::uintptr_t>(send),
             to = reinterpret_cast<std::uintptr_t>(recv);
  if (from != to && from < to + bytes && to < from + bytes) {
    return bad("send ", send, " and recv ", recv, " overlap within ", bytes,
               " bytes: they must be the same pointer or apart");
  }
  return {};
}

CollectiveCall all_reduce_call(const void* send, void* recv, std::uint64_t count, int dtype,
                               int op) {
  return {all_reduce_of(count, static_cast<DType>(dtype), static_cast<ReduceOp>(op)),
          static_cast<const std::byte*>(send), static_cast<std::byte*>(recv)};
}

}  // namespace arcomm::client

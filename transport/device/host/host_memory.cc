#include "transport/device/host/host_memory.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/device/sealed_memory.h"

namespace arcomm {
namespace {

Error no_descriptor(std::uint64_t bytes, int cause) {
  return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "a second descriptor for ", bytes,
               " bytes of shared memory: ", std::strerror(cause),
               "; free memory or raise the limits of the service (memory, open files)");
}

}  // namespace

Result<std::unique_ptr<HostMemory>> HostMemory::create(std::uint64_t bytes) {
  Result<SealedMemory> memory = make_sealed_memory("arcomm-memory", bytes);
  if (!memory) return std::move(memory).error();
  Result<SharedMapping> mapping =
      SharedMapping::map(memory->fd.get(), {.length_bytes = memory->bytes, .is_prefaulted = true});
  if (!mapping) return std::move(mapping).error();
  return std::unique_ptr<HostMemory>(new HostMemory(std::move(memory->fd), std::move(*mapping)));
}

Result<UniqueFd> HostMemory::export_fd() const {
  UniqueFd copy = duplicate(fd_.get());
  if (!copy) return no_descriptor(mapping_.bytes(), errno);
  return copy;
}

}  // namespace arcomm

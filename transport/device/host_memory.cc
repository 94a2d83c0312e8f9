#include "transport/device/host_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/device/sealed_memory.h"

namespace arcomm {
namespace {

Error out_of_memory(const char* what, std::uint64_t bytes, int cause) {
  return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, what, " for ", bytes,
               " bytes of shared memory: ", std::strerror(cause),
               "; free memory or raise the limits of the service (memory, open files)");
}

}  // namespace

Result<std::unique_ptr<HostMemory>> HostMemory::create(std::uint64_t bytes) {
  Result<SealedMemory> memory = make_sealed_memory("arcomm-memory", bytes);
  if (!memory) return std::move(memory).error();
  void* base = ::mmap(nullptr, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                      memory->fd.get(), 0);
  if (base == MAP_FAILED) return out_of_memory("mmap", memory->bytes, errno);
  return std::unique_ptr<HostMemory>(
      new HostMemory(std::move(memory->fd), {static_cast<std::byte*>(base), memory->bytes}));
}

HostMemory::~HostMemory() {
  ::munmap(view_.data, view_.bytes);
}

Result<UniqueFd> HostMemory::export_fd() const {
  UniqueFd copy = duplicate(fd_.get());
  if (!copy) return out_of_memory("a second descriptor", view_.bytes, errno);
  return copy;
}

}  // namespace arcomm

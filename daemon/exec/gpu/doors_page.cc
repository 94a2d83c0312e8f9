#include "daemon/exec/gpu/doors_page.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "transport/device/sealed_memory.h"

namespace arcomm {
namespace {

Error failed(const char* what) {
  return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, what,
               " for the doors of a rank: ", std::strerror(errno),
               "; raise the limits of the service (memory, open files)");
}

}  // namespace

Result<DoorsPage> DoorsPage::create() {
  Result<SealedMemory> memory = make_sealed_memory("arcomm-doors", sizeof(HostDoors));
  if (!memory) return std::move(memory).error();
  void* base = ::mmap(nullptr, sizeof(HostDoors), PROT_READ, MAP_SHARED, memory->fd.get(), 0);
  if (base == MAP_FAILED) return failed("mmap");
  DoorsPage page;
  page.fd_ = std::move(memory->fd);
  page.doors_ = static_cast<const HostDoors*>(base);
  return page;
}

DoorsPage::~DoorsPage() {
  if (doors_ != nullptr) ::munmap(const_cast<HostDoors*>(doors_), sizeof(HostDoors));
}

Result<UniqueFd> DoorsPage::export_fd() const {
  UniqueFd copy = duplicate(fd_.get());
  if (!copy) return failed("a second descriptor");
  return copy;
}

}  // namespace arcomm

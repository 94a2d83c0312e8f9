#include "daemon/exec/gpu/doorbell_page.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "transport/device/sealed_memory.h"

namespace arcomm {
namespace {

Error failed(const char* what) {
  return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, what,
               " for the doorbells of a rank: ", std::strerror(errno),
               "; raise the limits of the service (memory, open files)");
}

}  // namespace

Result<DoorbellPage> DoorbellPage::create() {
  Result<SealedMemory> memory = make_sealed_memory("arcomm-doorbells", sizeof(HostDoorbells));
  if (!memory) return std::move(memory).error();
  void* base = ::mmap(nullptr, sizeof(HostDoorbells), PROT_READ, MAP_SHARED, memory->fd.get(), 0);
  if (base == MAP_FAILED) return failed("mmap");
  DoorbellPage page;
  page.fd_ = std::move(memory->fd);
  page.doorbells_ = static_cast<const HostDoorbells*>(base);
  return page;
}

DoorbellPage::~DoorbellPage() {
  if (doorbells_ != nullptr)
    ::munmap(const_cast<HostDoorbells*>(doorbells_), sizeof(HostDoorbells));
}

Result<UniqueFd> DoorbellPage::export_fd() const {
  UniqueFd copy = duplicate(fd_.get());
  if (!copy) return failed("a second descriptor");
  return copy;
}

}  // namespace arcomm

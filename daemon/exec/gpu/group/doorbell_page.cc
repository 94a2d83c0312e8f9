#include "daemon/exec/gpu/group/doorbell_page.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/device/sealed_memory.h"

namespace arcomm {
namespace {

Error no_descriptor() {
  return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
               "a second descriptor for the doorbells of a rank: ", std::strerror(errno),
               "; raise the limits of the service (memory, open files)");
}

}  // namespace

Result<DoorbellPage> DoorbellPage::create() {
  Result<SealedMemory> memory = make_sealed_memory("arcomm-doorbells", sizeof(HostPages));
  if (!memory) return std::move(memory).error();
  Result<SharedMapping> mapping =
      SharedMapping::map(memory->fd.get(), {.length_bytes = sizeof(HostPages),
                                            .access = SharedMapping::Access::ReadOnly,
                                            .what = "the doorbells of a rank"});
  if (!mapping) return std::move(mapping).error();
  DoorbellPage page;
  page.fd_ = std::move(memory->fd);
  page.mapping_ = std::move(*mapping);
  return page;
}

Result<UniqueFd> DoorbellPage::export_fd() const {
  UniqueFd copy = duplicate(fd_.get());
  if (!copy) return no_descriptor();
  return copy;
}

}  // namespace arcomm

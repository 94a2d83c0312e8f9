#include "daemon/exec/gpu/group/doorbell_page.h"

#include <unistd.h>

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

Result<DoorbellPage> DoorbellPage::create(std::uint32_t operations_before) {
  Result<SealedMemory> memory = make_sealed_memory("arcomm-doorbells", sizeof(HostPages));
  if (!memory) return std::move(memory).error();
  Result<SharedMapping> mapping =
      SharedMapping::map(memory->fd.get(), {.length_bytes = sizeof(HostPages),
                                            .access = SharedMapping::Access::ReadOnly,
                                            .what = "the doorbells of a rank"});
  if (!mapping) return std::move(mapping).error();
  HostDoorbells words{};
  words.launched = to_word(Doorbell{.number = operations_before});
  words.resident_posted = operations_before;
  // Mapped for reading alone, and zero where it is new.
  if (operations_before != 0 &&
      ::pwrite(memory->fd.get(), &words, sizeof(words), 0) != static_cast<ssize_t>(sizeof(words)))
    return no_descriptor();
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

#include "client/src/gpu/gpu_mailbox.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace arcomm::client {

Result<std::unique_ptr<GpuMailbox>> GpuMailbox::open(Gpu& gpu, UniqueFd memory,
                                                     std::uint64_t memory_bytes,
                                                     UniqueFd doorbells) {
  if (memory_bytes < kMailboxWithNotesBytes) {
    return error(ErrorCode::Internal, Reason::Version, "the daemon's mailbox has ", memory_bytes,
                 " bytes and ", kMailboxWithNotesBytes,
                 " are needed: are client and daemon of one version?");
  }
  struct stat facts {};
  if (::fstat(doorbells.get(), &facts) != 0 ||
      facts.st_size < static_cast<off_t>(sizeof(HostDoorbells))) {
    return error(ErrorCode::Internal, Reason::Version, "the daemon's doorbells have ",
                 facts.st_size, " bytes and ", sizeof(HostDoorbells),
                 " are needed: are client and daemon of one version?");
  }
  std::unique_ptr<GpuMailbox> mailbox(new GpuMailbox);
  Result<std::unique_ptr<GpuMapping>> mapped = gpu.import_memory(memory.get(), memory_bytes);
  if (!mapped) return std::move(mapped).error();
  mailbox->memory_ = std::move(*mapped);
  // CUDA pins whole pages.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  mailbox->doorbells_bytes_ = (static_cast<std::size_t>(facts.st_size) + page - 1) / page * page;
  void* const pages = ::mmap(nullptr, mailbox->doorbells_bytes_, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_POPULATE, doorbells.get(), 0);
  if (pages == MAP_FAILED) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "cannot map the daemon's doorbells: ", std::strerror(errno));
  }
  mailbox->doorbells_ = pages;
  mapped = gpu.map_host(pages, mailbox->doorbells_bytes_);
  if (!mapped) return std::move(mapped).error();
  mailbox->doorbells_on_gpu_ = std::move(*mapped);
  const std::vector<std::byte> zeros(sizeof(PostNotes));
  // The first use of the GPU: its context may still be settling.
  constexpr std::chrono::seconds kFirstCopy{5};
  ARC_RETURN_IF_ERROR(gpu.write(mailbox->notes(), zeros.data(), zeros.size(), kFirstCopy));
  return mailbox;
}

GpuMailbox::~GpuMailbox() {
  doorbells_on_gpu_.reset();
  if (doorbells_ != nullptr) ::munmap(doorbells_, doorbells_bytes_);
}

Error error_of(std::uint64_t done_word, const char* what) {
  const Done done = done_from(done_word);
  const ErrorCode code = error_code_from(done.code);
  if (done_word == 0 || code == ErrorCode::Ok) return {ErrorCode::Ok, Reason::None, "", -1};
  const Reason reason = reason_from(done.reason);
  Error said = error(code, reason, what, ": ", text_of(reason));
  if (done.culprit_rank >= 0) {
    said.message += " (rank " + std::to_string(done.culprit_rank) + ")";
    said.rank = done.culprit_rank;
  }
  return said;
}

}  // namespace arcomm::client

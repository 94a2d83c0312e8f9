#include "client/src/gpu/gpu_mailbox.h"

#include <sys/stat.h>

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
      facts.st_size < static_cast<off_t>(sizeof(HostPages))) {
    return error(ErrorCode::Internal, Reason::Version, "the daemon's doorbells have ",
                 facts.st_size, " bytes and ", sizeof(HostPages),
                 " are needed: are client and daemon of one version?");
  }
  std::unique_ptr<GpuMailbox> mailbox(new GpuMailbox);
  Result<std::unique_ptr<GpuMapping>> mapped = gpu.import_memory(memory.get(), memory_bytes);
  if (!mapped) return std::move(mapped).error();
  mailbox->memory_ = std::move(*mapped);
  // CUDA pins whole pages.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t bytes = (static_cast<std::size_t>(facts.st_size) + page - 1) / page * page;
  Result<SharedMapping> pages = SharedMapping::map(
      doorbells.get(),
      {.length_bytes = bytes, .is_prefaulted = true, .what = "the daemon's doorbells"});
  if (!pages) return std::move(pages).error();
  mailbox->doorbells_ = std::move(*pages);
  mapped = gpu.map_host(mailbox->doorbells_.data(), mailbox->doorbells_.bytes());
  if (!mapped) return std::move(mapped).error();
  mailbox->doorbells_on_gpu_ = std::move(*mapped);
  const std::vector<std::byte> zeros(sizeof(PostNotes));
  // The first use of the GPU: its context may still be settling.
  constexpr std::chrono::seconds kFirstCopy{5};
  ARC_RETURN_IF_ERROR(gpu.write(mailbox->notes(), zeros.data(), zeros.size(), kFirstCopy));
  return mailbox;
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

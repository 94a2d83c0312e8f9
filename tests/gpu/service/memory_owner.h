// Another process with memory on a GPU, as a client has: it makes two buffers, hands them over as
// libarclient does, and frees them when told, or is killed. Or one that takes all memory that is
// left there, and says whether anybody else has written to it. Either is this very program, started
// again, so main() begins with run_as_owner().
// Thread: one.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/memory_handle.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm::gpu {

enum class Sharing : std::uint8_t { CudaIpc, Descriptor };

// Element i of what rank `rank` sends, and of the sum of ranks 0 and 1: exact in float32.
constexpr float sent_by(int rank, std::uint64_t i) {
  return static_cast<float>((i + static_cast<std::uint64_t>(rank) * 5) % 1021);
}

class MemoryOwner {
 public:
  struct Part {
    MemoryHandle handle;
    UniqueFd descriptor;  // of Sharing::Descriptor
  };

  // Two buffers of `bytes`: one that holds what rank 1 sends, one that holds nothing.
  static Result<MemoryOwner> start(Sharing sharing, int ordinal, std::uint64_t bytes);
  // Has nothing yet.
  static Result<MemoryOwner> start_stranger(int ordinal);
  ~MemoryOwner();  // kills it
  MemoryOwner(MemoryOwner&& other) noexcept;
  MemoryOwner& operator=(MemoryOwner&&) = delete;

  const std::array<Part, 2>& parts() const { return parts_; }  // send, recv
  // It lives on without its memory.
  Status free_memory();
  // SIGKILL; nothing of it is left when this returns.
  void kill();

  // A stranger's: takes what there is and writes on all of it; megabytes.
  Result<std::uint64_t> take_all();
  // Whether what it wrote is still there.
  Result<bool> is_untouched();

 private:
  MemoryOwner(pid_t pid, UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}
  static Result<MemoryOwner> spawn(const std::vector<std::string>& arguments);
  Result<std::uint64_t> ask(char what);

  pid_t pid_ = -1;
  UniqueFd socket_;
  std::array<Part, 2> parts_;
};

// The exit status where this process was started as one of them, else -1.
int run_as_owner(int argc, char** argv);

}  // namespace arcomm::gpu

// NCCL's functions, found at run time in the library that is named: no header of it is needed, and
// arctl works where there is none. The types are those of its C ABI, which are fixed. Any thread.
#pragma once

#include <cstddef>
#include <string>

#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::arctl {

struct NcclId {
  char internal[128];
};

struct NcclLibrary {
  // path: of libnccl.so.2; "": as the loader finds it. An error says what to do. Stays loaded.
  static Result<NcclLibrary> load(const std::string& path);

  int (*get_version)(int* version) = nullptr;
  int (*get_unique_id)(NcclId* id) = nullptr;
  int (*comm_init_rank)(void** comm, int ranks, NcclId id, int rank) = nullptr;
  int (*all_reduce)(const void* send, void* recv, std::size_t count, int dtype, int op, void* comm,
                    void* stream) = nullptr;
  int (*comm_get_async_error)(void* comm, int* state) = nullptr;
  // For one process that drives all GPUs.
  int (*comm_init_all)(void** comms, int count, const int* devices) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  const char* (*get_error_string)(int result) = nullptr;
  // Null in a library that is older than they are.
  const char* (*get_last_error)(void* comm) = nullptr;
  int (*mem_alloc)(void** memory, std::size_t bytes) = nullptr;
  int (*comm_window_register)(void* comm, void* memory, std::size_t bytes, void** window,
                              int flags) = nullptr;

  std::string version() const;  // "2.27.3"
  // comm: whose last error is told, or null.
  Status checked(int result, const char* what, void* comm) const;
};

// NCCL_NVLS_ENABLE as the ranks have it: the environment's, else 0, since arcommd does not use
// NVLink multicast either.
inline constexpr const char* kNvlsVariable = "NCCL_NVLS_ENABLE";
std::string nccl_nvls();

// ncclDataType_t and ncclRedOp_t.
int nccl_number_of(DType dtype);
int nccl_number_of(ReduceOp op);
inline constexpr int kNcclWindowSymmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC

}  // namespace arcomm::arctl

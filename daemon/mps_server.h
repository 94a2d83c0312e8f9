// NVIDIA's MPS control daemon as a child of this one: started with its folders below the runtime
// folder, told to quit at the end. Thread: the daemon's main thread.
#pragma once

#include <memory>
#include <string>

#include "proto/status.h"

namespace arcomm {

class MpsServer {
 public:
  // Where the pipes are for this runtime folder; clients name it in CUDA_MPS_PIPE_DIRECTORY.
  static std::string pipe_folder(const std::string& runtime_dir);
  // Puts both folders into this process's environment. Before any other thread: CUDA reads it.
  static void name_folders(const std::string& runtime_dir);

  // Starts one, or takes over the one that a dead daemon left there. Bounded by 10 s; CUDA must
  // not have been called yet.
  static Result<std::unique_ptr<MpsServer>> start(const std::string& runtime_dir);
  // It ends once its last client has: this process may still be one, so that is not waited for.
  ~MpsServer();
  MpsServer(const MpsServer&) = delete;
  MpsServer& operator=(const MpsServer&) = delete;

 private:
  MpsServer() = default;
};

}  // namespace arcomm

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

  // Starts one, or takes over the one that a dead daemon left there; as root one whose server all
  // users share (-multiuser-server), where the program knows how. One that is taken over serves all
  // where it is known to have been started so. Each step bounded by 10 s; CUDA
  // must not have been called yet.
  static Result<std::unique_ptr<MpsServer>> start(const std::string& runtime_dir, bool as_root);
  // It ends once its last client has: this process may still be one, so that is not waited for.
  ~MpsServer();
  MpsServer(const MpsServer&) = delete;
  MpsServer& operator=(const MpsServer&) = delete;

  // Otherwise it serves this process's user alone: CUDA of another one's client waits, when it
  // starts, until this process has ended.
  bool serves_all_users() const { return serves_all_users_; }

 private:
  explicit MpsServer(bool serves_all_users) : serves_all_users_(serves_all_users) {}

  const bool serves_all_users_;
};

}  // namespace arcomm

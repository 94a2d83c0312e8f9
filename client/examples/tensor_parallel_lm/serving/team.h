// The rank processes, as the front end sees them: started by fork and exec of this program, before
// it has touched the library (a forked copy of an attached process could not use it), and stopped
// when the Team goes. Thread: one thread. Ownership: owns the processes and their channels.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "client/examples/tensor_parallel_lm/serving/serve.h"

namespace lm {

class Team {
 public:
  // Returns when every rank has joined the communicator, whose sums go through the codec. Throws
  // std::runtime_error. record_path: "" for none; each rank appends its number.
  Team(int ranks, const std::string& weights_path, arcCodec_t codec = arcCodecNone,
       const std::string& record_path = "");
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Every rank answers; in rank order.
  std::vector<Reply> ask(const Request& request);

 private:
  void start(const RankOptions& options);

  std::vector<pid_t> processes_;
  std::vector<Channel> channels_;
};

// The command line of a rank process, and how main() knows it: nullopt if this is the front end.
inline constexpr char kRankProcessFlag[] = "--rank-process";
// Where a rank records.
std::string record_path_of(const std::string& record_path, int rank);
// Runs a rank process if argv asks for one; its exit status, or -1 if this process is the front
// end.
int run_as_rank(int argc, char** argv);

}  // namespace lm

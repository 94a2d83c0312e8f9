#include "client/examples/tensor_parallel_lm/serving/team.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "client/examples/tensor_parallel_lm/serving/codecs.h"
#include "client/include/arclient.hpp"

namespace lm {
namespace {

constexpr std::chrono::seconds kJoinTimeout{60};
constexpr std::chrono::seconds kAnswerTimeout{300};
constexpr std::chrono::seconds kEndTimeout{5};

// Waits for the process, and kills it when it does not end by itself.
void reap(pid_t process) {
  const auto deadline = std::chrono::steady_clock::now() + kEndTimeout;
  while (::waitpid(process, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(process, SIGKILL);
      ::waitpid(process, nullptr, 0);
      return;
    }
    ::usleep(2000);
  }
}

}  // namespace

std::string record_path_of(const std::string& record_path, int rank) {
  return record_path.empty() ? "" : record_path + "." + std::to_string(rank);
}

Team::Team(int ranks, const std::string& weights_path, arcCodec_t codec,
           const std::string& record_path) {
  try {
    for (int rank = 0; rank < ranks; ++rank)
      start({rank, ranks, weights_path, codec, record_path_of(record_path, rank)});
    const arcUniqueId id = arc::unique_id();
    for (Channel& channel : channels_) channel.send({id.internal, sizeof id.internal});
    for (Channel& channel : channels_) channel.expect(kJoinTimeout);
  } catch (...) {
    channels_.clear();
    for (const pid_t process : processes_) reap(process);
    throw;
  }
}

Team::~Team() {
  channels_.clear();  // a rank ends when its channel does
  for (const pid_t process : processes_) reap(process);
}

void Team::start(const RankOptions& options) {
  const auto [ours, theirs] = Channel::open_pair();
  channels_.emplace_back(ours, "rank " + std::to_string(options.rank));
  const std::string arguments[] = {"tensor_parallel_lm",
                                   kRankProcessFlag,
                                   std::to_string(options.rank),
                                   std::to_string(options.ranks),
                                   std::to_string(theirs),
                                   options.weights_path,
                                   std::string(name_of(options.codec)),
                                   options.record_path};
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t process = ::fork();
  if (process == 0) {
    ::execv("/proc/self/exe", argv.data());
    ::_exit(127);
  }
  ::close(theirs);
  if (process < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  processes_.push_back(process);
}

std::vector<Reply> Team::ask(const Request& request) {
  const std::string message = encode(request);
  for (Channel& channel : channels_) channel.send(message);
  std::vector<Reply> replies;
  for (Channel& channel : channels_)
    replies.push_back(decode_reply(channel.expect(kAnswerTimeout)));
  return replies;
}

int run_as_rank(int argc, char** argv) {
  if (argc != 8 || std::strcmp(argv[1], kRankProcessFlag) != 0) return -1;
  const RankOptions options{std::atoi(argv[2]), std::atoi(argv[3]), argv[5],
                            codec_named(argv[6]).value_or(arcCodecNone), argv[7]};
  try {
    Channel front_end(std::atoi(argv[4]), "the front end");
    serve(options, front_end);
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "tensor_parallel_lm: rank %d: %s\n", options.rank, failure.what());
    return 1;
  }
}

}  // namespace lm

// Gloo over its TCP transport on the loopback interface, the only one that connects processes in
// Debian's build: ring and bcube of gloo::allreduce, and the older halving-doubling, which works in
// place. Forks its ranks.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>

#include "client/arctl/bench/rank_board.h"
#include "tests/bench/peer_run.h"

namespace arcomm::bench {
namespace {

using arctl::RankBoard;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(60);

void add_float(void* out, const void* a, const void* b, std::size_t count) {
  auto* sum = static_cast<float*>(out);
  const auto *left = static_cast<const float*>(a), *right = static_cast<const float*>(b);
  for (std::size_t i = 0; i < count; ++i) sum[i] = left[i] + right[i];
}
void add_half(void* out, const void* a, const void* b, std::size_t count) {
  add_bfloat16(static_cast<std::uint16_t*>(out), static_cast<const std::uint16_t*>(a),
               static_cast<const std::uint16_t*>(b), count);
}
void add_half_in_place(std::uint16_t* out, const std::uint16_t* in, std::size_t count) {
  add_bfloat16(out, out, in, count);
}

constexpr double kWarmUpUs = 100'000;

struct Run {
  const PeerOptions& options;
  const RankBoard& board;
  std::shared_ptr<::gloo::Context> context;
  Rank rank;
  std::byte* send;
  std::byte* recv;
};

bool meet(const Run& run) {
  return run.board.meet(Clock::now() + kPatience).ok();
}

// One call's time on the slowest rank, known to all ranks.
double pilot_us(const Run& run, const std::function<void()>& once) {
  if (!meet(run)) std::_Exit(1);
  const auto start = Clock::now();
  once();
  run.board.samples_of(run.rank)[0] =
      std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  if (!meet(run)) std::_Exit(1);
  double slowest = 0;
  for (Rank rank = 0; rank < run.options.ranks; ++rank) {
    slowest = std::max(slowest, run.board.samples_of(rank)[0]);
  }
  if (!meet(run)) std::_Exit(1);
  return slowest;
}

// `once` leaves the result in run.recv. Every rank's means go to the board; rank 0 prints the
// slowest.
void measure(const Run& run, const char* algorithm, std::uint64_t bytes, double& best_pilot,
             const std::function<void()>& once) {
  const std::uint32_t iterations = run.options.iterations_of(bytes);
  const std::uint64_t count = bytes / size_of(run.options.dtype);
  const arctl::Pattern pattern(run.options.dtype, ReduceOp::Sum, run.options.ranks);
  // An algorithm that is far behind at this size is left out: only the fastest counts, and Gloo's
  // ring takes minutes.
  const double pilot = std::min(pilot_us(run, once), pilot_us(run, once));
  if (pilot > 4 * best_pilot) return;
  best_pilot = std::min(best_pilot, pilot);
  // As many as the others do, or a tenth of a second: its processes sleep between messages anyway.
  const auto within = static_cast<std::uint32_t>(std::clamp(kWarmUpUs / pilot, 5.0, 1e6));
  for (std::uint32_t i = 0; i < std::min(arctl::default_warmup(bytes), within); ++i) once();
  // In-place algorithms run on zeros while they are timed, or the sums would grow without bound.
  std::memset(run.recv, 0, bytes);
  for (std::uint32_t round = 0; round < run.options.rounds; ++round) {
    if (!meet(run)) std::_Exit(1);
    const auto start = Clock::now();
    for (std::uint32_t i = 0; i < iterations; ++i) once();
    run.board.samples_of(run.rank)[round] =
        std::chrono::duration<double, std::micro>(Clock::now() - start).count() / iterations;
  }
  pattern.fill(run.recv, count, run.rank);  // what in-place algorithms reduce
  if (!meet(run)) std::_Exit(1);
  once();
  run.board.page().slots[run.rank].wrong = pattern.wrong(run.recv, count);
  if (!meet(run)) std::_Exit(1);
  if (run.rank == 0) {
    std::vector<double> slowest(run.options.rounds, 0.0);
    std::uint64_t wrong = 0;
    for (Rank rank = 0; rank < run.options.ranks; ++rank) {
      for (std::size_t i = 0; i < slowest.size(); ++i)
        slowest[i] = std::max(slowest[i], run.board.samples_of(rank)[i]);
      wrong += run.board.page().slots[rank].wrong;
    }
    print_samples("gloo", algorithm, run.options, bytes, slowest, wrong);
  }
  if (!meet(run)) std::_Exit(1);
}

template <typename T>
void measure_options(const Run& run, const char* name,
                     ::gloo::AllreduceOptions::Algorithm algorithm, std::uint64_t bytes,
                     double& best_pilot,
                     void (*add)(void*, const void*, const void*, std::size_t)) {
  ::gloo::AllreduceOptions options(run.context);
  options.setAlgorithm(algorithm);
  options.setInput(reinterpret_cast<T*>(run.send), bytes / sizeof(T));
  options.setOutput(reinterpret_cast<T*>(run.recv), bytes / sizeof(T));
  options.setReduceFunction(add);
  measure(run, name, bytes, best_pilot, [&options] { ::gloo::allreduce(options); });
}

template <typename T>
void measure_size(const Run& run, std::uint64_t bytes,
                  void (*add)(void*, const void*, const void*, std::size_t),
                  const ::gloo::ReductionFunction<T>* add_in_place) {
  const arctl::Pattern pattern(run.options.dtype, ReduceOp::Sum, run.options.ranks);
  pattern.fill(run.send, bytes / sizeof(T), run.rank);
  const std::vector<T*> in_place = {reinterpret_cast<T*>(run.recv)};
  ::gloo::AllreduceHalvingDoubling<T> halving(run.context, in_place,
                                              static_cast<int>(bytes / sizeof(T)), add_in_place);
  double best_pilot = std::numeric_limits<double>::infinity();
  measure(run, "halving_doubling", bytes, best_pilot, [&halving] { halving.run(); });
  measure_options<T>(run, "bcube", ::gloo::AllreduceOptions::Algorithm::BCUBE, bytes, best_pilot,
                     add);
  measure_options<T>(run, "ring", ::gloo::AllreduceOptions::Algorithm::RING, bytes, best_pilot,
                     add);
}

void run_rank(const PeerOptions& options, const RankBoard& board, Rank rank,
              const std::string& folder) {
  auto context = std::make_shared<::gloo::rendezvous::Context>(rank, options.ranks);
  ::gloo::rendezvous::FileStore store(folder);
  auto device = ::gloo::transport::tcp::CreateDevice("127.0.0.1");
  context->connectFullMesh(store, device);
  const std::uint64_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
  std::vector<std::byte> send(largest), recv(largest);
  const Run run{options, board, context, rank, send.data(), recv.data()};
  const ::gloo::ReductionFunction<std::uint16_t> add_halves(::gloo::ReductionType::CUSTOM,
                                                            &add_half_in_place);
  for (const std::uint64_t bytes : options.sizes) {
    if (options.dtype == DType::Float32) {
      measure_size<float>(run, bytes, add_float, ::gloo::ReductionFunction<float>::sum);
    } else {
      measure_size<std::uint16_t>(run, bytes, add_half, &add_halves);
    }
  }
}

int run(int argc, char** argv) {
  const PeerOptions options = parse_peer_options(argc, argv);
  if (options.sizes.empty() ||
      (options.dtype != DType::Float32 && options.dtype != DType::BFloat16)) {
    std::fprintf(stderr, "gloo_peer: wants --sizes, and float32 or bfloat16\n");
    return 2;
  }
  Result<RankBoard> board = RankBoard::create(options.ranks);
  std::string folder = (std::filesystem::temp_directory_path() / "gloo-peer-XXXXXX").string();
  if (!board || ::mkdtemp(folder.data()) == nullptr) {
    std::fprintf(stderr, "gloo_peer: cannot set up\n");
    return 1;
  }
  std::vector<pid_t> ranks;
  for (Rank rank = 0; rank < options.ranks; ++rank) {
    const pid_t pid = ::fork();  // before any thread exists
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      try {
        run_rank(options, *board, rank, folder);
      } catch (const std::exception& failure) {
        std::fprintf(stderr, "gloo_peer: rank %d: %s\n", rank, failure.what());
        board->fail(rank, error(ErrorCode::Internal, Reason::None, failure.what()));
        std::_Exit(1);
      }
      std::_Exit(0);
    }
    ranks.push_back(pid);
  }
  int worst = 0;
  for (const pid_t pid : ranks) {
    int how = 0;
    ::waitpid(pid, &how, 0);
    if (how != 0) worst = 1;
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return worst;
}

}  // namespace
}  // namespace arcomm::bench

int main(int argc, char** argv) {
  return arcomm::bench::run(argc, argv);
}

// Gloo over its TCP transport on the loopback interface, the only one that connects processes in
// Debian's build: ring and bcube of gloo::allreduce, and the older halving-doubling, which works in
// place. Forks its ranks.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "tests/bench/peer_rank.h"

namespace arcomm::bench {
namespace {

using arctl::RankBoard;

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

struct Run : PeerRank {
  std::shared_ptr<::gloo::Context> context;
};

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
  const Run run{{"gloo", options, board, rank, send.data(), recv.data()}, context};
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
  const int worst = run_ranks("gloo_peer", options, *board,
                              [&](Rank rank) { run_rank(options, *board, rank, folder); });
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return worst;
}

}  // namespace
}  // namespace arcomm::bench

int main(int argc, char** argv) {
  return arcomm::bench::run(argc, argv);
}

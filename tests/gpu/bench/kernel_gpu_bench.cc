// How long the GPU kernels take, beside NCCL in the same process and run, as it comes and with
// symmetric windows: operations back to back on a plain stream and in a graph, the slowest rank,
// median of rounds; and how fast two GPUs copy to each other. What the timed operations left is
// verified, above 64 MB in windows of it.
//   kernel_gpu_bench [--ranks N] [--nccl PATH] [--json FILE] [--blocks N] [--from BYTES]
//     [--only NAME]: `peers`, or one of our columns
//     [--codecs yes]: in-stream operations, with every codec, in the place of launched ones
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/host/reference_coded.h"
#include "tests/gpu/bench/copy_rate.h"
#include "tests/gpu/bench/gpu_clock.h"
#include "tests/gpu/bench/in_stream_contender.h"
#include "tests/gpu/bench/nccl_peer.h"
#include "tests/gpu/kernels/node/gpu_node.h"

namespace arcomm::gpu {
namespace {

constexpr std::uint64_t kMostBytes = 1ULL << 30;
constexpr std::uint64_t kPeriod = 13 << 16;  // elements, after which inputs and results repeat
constexpr std::uint64_t kWholeBytes = 64 << 20, kWindows = 16, kWindowBytes = 1 << 20;

struct Contender {
  CudaAlgorithm algorithm;
  const char* name;
};
constexpr Contender kContenders[] = {
    {CudaAlgorithm::OneShotLl16, "ll16"},   {CudaAlgorithm::TwoShot, "two_shot"},
    {CudaAlgorithm::Stream, "stream"},      {CudaAlgorithm::Flash, "flash"},
    {CudaAlgorithm::OneShotLl128, "ll128"}, {CudaAlgorithm::TwoShotLl128, "ll128_x2"},
    {CudaAlgorithm::CopyEngine, "copies"}};

struct Options {
  int ranks = 2;
  std::string nccl, json;
  std::uint32_t blocks = 0;  // 0: the kernels' own rule
  std::uint64_t from_bytes = 1024;
  std::string only;  // empty: everything
  bool codecs = false;

  bool takes(std::string_view name) const { return only.empty() || only == name; }
};

class Bench {
 public:
  // in_stream: null but where codecs are timed.
  Bench(GpuNode& node, std::unique_ptr<InStreamContender> in_stream, NcclPeer nccl,
        std::optional<NcclPeer> symmetric, const Options& options)
      : node_(node),
        in_stream_(std::move(in_stream)),
        nccl_(std::move(nccl)),
        symmetric_(std::move(symmetric)),
        options_(options),
        clock_(node_) {
    for (int rank = 0; rank < node_.ranks(); ++rank) {
      ours_.send.push_back(node_[rank].send.data());
      ours_.recv.push_back(node_[rank].recv.data());
      streams_.push_back(node_[rank].stream->handle());
    }
  }

  bool run() {
    if (node_.ranks() > 1) light_gbs_ = peer_copy_gbs(0, 1);
    open_windows();
    fill(ours_);
    if (windows_) fill(*windows_);
    std::printf("%d GPUs, float16 sum out of place, us (bus GB/s); NCCL %s; copies both ways at ",
                node_.ranks(), nccl_.version().c_str());
    std::printf(light_gbs_ ? "%.0f GB/s each\n" : "an unknown rate\n", light_gbs_.value_or(0));
    std::printf("%10s", "bytes");
    for (const Contender& one : kContenders) {
      if (!in_stream_ && options_.takes(one.name)) std::printf(" | %9s  in graph", one.name);
    }
    for (unsigned codec = 0; in_stream_ && codec < kCodecs; ++codec) {
      if (options_.takes(name_in_stream(codec)))
        std::printf(" | %9s  in graph", name_in_stream(codec).data());
    }
    std::printf(" |      NCCL  in graph | symmetric  in graph | best NCCL / ours: stream, graph\n");
    bool right = true;
    for (std::uint64_t bytes = options_.from_bytes; bytes <= kMostBytes; bytes *= 4)
      right &= row(bytes);
    if (!options_.json.empty()) save();
    return right;
  }

 private:
  using Buffers = NcclPeer::Windows;  // by rank

  // On a communicator of their own: the other's timings are those of one that has none.
  void open_windows() {
    if (!symmetric_) return;
    auto windows = symmetric_->symmetric_windows(kMostBytes);
    if (windows) {
      windows_ = std::move(*windows);
    } else {
      std::printf("without symmetric windows: %s\n", windows.error().message.c_str());
    }
  }

  // Small integers, exact in float16 for up to 8 ranks: rank r holds (i % 13) + r.
  void fill(const Buffers& buffers) {
    const int ranks = node_.ranks();
    patterns_.assign(static_cast<std::size_t>(ranks), std::vector<std::uint16_t>(kPeriod));
    for (int rank = 0; rank < ranks; ++rank) {
      cudaSetDevice(rank);
      std::vector<std::uint16_t>& pattern = patterns_[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < pattern.size(); ++i)
        pattern[i] = half_of(static_cast<int>(i % 13) + rank);
      auto* const to = static_cast<std::byte*>(buffers.send[static_cast<std::size_t>(rank)]);
      std::uint64_t done = kPeriod * 2;
      cudaMemcpy(to, pattern.data(), done, cudaMemcpyHostToDevice);
      for (; done < kMostBytes; done *= 2)
        cudaMemcpy(to + done, to, std::min(done, kMostBytes - done), cudaMemcpyDeviceToDevice);
      cudaDeviceSynchronize();
    }
    plain_.resize(kPeriod);
    for (std::size_t i = 0; i < plain_.size(); ++i)
      plain_[i] = half_of(ranks * static_cast<int>(i % 13) + ranks * (ranks - 1) / 2);
  }
  // Of the golden codec. The period is whole blocks, and so is every shard: results repeat, too.
  std::vector<std::uint16_t> coded(Codec codec) {
    if (codec == Codec::None) return plain_;
    std::vector<std::uint16_t> sums(kPeriod);
    AllReduceArgs args = AllReduceArgs::among(static_cast<std::uint32_t>(node_.ranks()), kPeriod,
                                              DType::Float16, ReduceOp::Sum);
    args.codec = codec;
    for (std::size_t rank = 0; rank < patterns_.size(); ++rank)
      args.inputs[rank] = patterns_[rank].data();
    args.num_outputs = 1;
    args.outputs[0] = sums.data();
    if (node_.ranks() == 2) {
      reference::coded_all_reduce_range(args, 0, kPeriod);
    } else {
      reference::coded_all_reduce_in_two_hops(args, 0, kPeriod);
    }
    return sums;
  }
  static std::uint16_t half_of(int value) {  // 0 .. 2048
    if (value == 0) return 0;
    const int exponent = 31 - __builtin_clz(static_cast<unsigned>(value));
    return static_cast<std::uint16_t>(((exponent + 15) << 10) |
                                      ((value << (10 - exponent)) & 0x3ff));
  }

  void poison(const Buffers& buffers, std::uint64_t bytes) {
    for (int rank = 0; rank < node_.ranks(); ++rank) {
      cudaSetDevice(rank);
      cudaMemset(buffers.recv[static_cast<std::size_t>(rank)], 0xa5, bytes);
      cudaDeviceSynchronize();
    }
  }
  bool verify(const char* what, const Buffers& buffers, std::uint64_t bytes) {
    // A result in one piece, or its beginning, its end and what lies evenly between.
    const std::uint64_t pieces = bytes <= kWholeBytes ? 1 : kWindows;
    const std::uint64_t length = pieces == 1 ? bytes : kWindowBytes;
    got_.resize(kWholeBytes / 2);
    for (int rank = 0; rank < node_.ranks(); ++rank) {
      cudaSetDevice(rank);
      const auto* const from =
          static_cast<const std::byte*>(buffers.recv[static_cast<std::size_t>(rank)]);
      bool right = node_.outcome(rank).code == 0 && !(in_stream_ && in_stream_->has_failed());
      for (std::uint64_t piece = 0; piece < pieces && right; ++piece) {
        const std::uint64_t at = pieces == 1 ? 0 : (bytes - length) / (pieces - 1) * piece / 2 * 2;
        const std::uint64_t first = piece + 1 == pieces ? bytes - length : at;
        right =
            cudaMemcpy(got_.data(), from + first, length, cudaMemcpyDeviceToHost) == cudaSuccess &&
            is_expected(first / 2, length / 2);
      }
      if (right) continue;
      std::printf("WRONG: %s, %lu bytes, rank %d (outcome %u)\n", what, bytes, rank,
                  node_.outcome(rank).code);
      return false;
    }
    return true;
  }
  bool is_expected(std::uint64_t first, std::uint64_t count) const {
    for (std::uint64_t done = 0, length = 0; done < count; done += length) {
      const std::uint64_t place = (first + done) % kPeriod;
      length = std::min(count - done, kPeriod - place);
      if (std::memcmp(&got_[done], &(*expected_)[place], length * 2) != 0) return false;
    }
    return true;
  }

  struct Times {
    double stream = -1, graph = -1;
  };
  Times measure(const char* what, const Buffers& buffers, std::uint64_t bytes,
                const Enqueue& enqueue, bool& right, bool in_graph = true) {
    const int operations = bytes <= (1 << 20) ? 20 : bytes <= (16 << 20) ? 5 : 1;
    const int launches = bytes <= (1 << 20) ? 10 : bytes <= (64 << 20) ? 4 : 2;
    Times times;
    poison(buffers, bytes);
    times.stream = clock_.time(enqueue, 1, operations * launches);
    right &= verify(what, buffers, bytes);
    if (!in_graph) return times;
    poison(buffers, bytes);
    times.graph = clock_.time_graph(enqueue, operations, launches);
    right &= verify(what, buffers, bytes);
    return times;
  }

  Times measure_nccl(const char* what, NcclPeer& peer, const Buffers& buffers, std::uint64_t bytes,
                     bool& right) {
    return measure(
        what, buffers, bytes,
        [&] {
          return peer.all_reduce(buffers.send, buffers.recv, bytes / 2, DType::Float16, streams_);
        },
        right);
  }

  bool row(std::uint64_t bytes) {
    const std::uint64_t count = bytes / 2;
    bool right = true;
    const auto best = [](double a, double b) { return a < 0 ? b : b < 0 ? a : std::min(a, b); };
    std::string line, json;
    const auto number = [](double us, const char* form, const char* none) {
      char text[32];
      std::snprintf(text, sizeof(text), form, us);
      return std::string(us < 0 ? none : text);
    };
    const auto tell = [&](const char* name, Times times) {
      line += " | " + number(times.stream, "%9.2f", "        -") + " " +
              number(times.graph, "%9.2f", "        -");
      json += std::string(", \"") + name + "_us\": [" + number(times.stream, "%.3f", "null") +
              ", " + number(times.graph, "%.3f", "null") + "]";
    };
    const std::vector<CudaAlgorithm> algorithms = node_.algorithms();
    Times ours;
    for (const Contender& one : kContenders) {
      if (in_stream_ || !options_.takes(one.name)) continue;
      Times times;
      const bool joint = entry_of(one.algorithm).launches_all_ranks;
      if ((joint || std::ranges::count(algorithms, one.algorithm) != 0) &&
          bytes >= entry_of(one.algorithm).sensible_from &&
          can_launch(one.algorithm, bytes, static_cast<std::uint32_t>(node_.ranks()))) {
        times = measure(
            one.name, ours_, bytes,
            [&] {
              return node_
                  .launch(one.algorithm, count, DType::Float16, ReduceOp::Sum, {options_.blocks})
                  .ok();
            },
            right, !joint);
      }
      ours = {best(ours.stream, times.stream), best(ours.graph, times.graph)};
      tell(one.name, times);
    }
    for (unsigned codec = 0; in_stream_ && codec < kCodecs; ++codec) {
      const std::string_view name = name_in_stream(codec);
      if (!options_.takes(name)) continue;
      Times times;
      if (in_stream_->takes(bytes, static_cast<Codec>(codec))) {
        if (codec != 0 && coded_[codec].empty()) coded_[codec] = coded(static_cast<Codec>(codec));
        if (codec != 0) expected_ = &coded_[codec];
        times = measure(
            name.data(), ours_, bytes,
            [&] { return in_stream_->enqueue(bytes, static_cast<Codec>(codec)); }, right);
        expected_ = &plain_;
      }
      ours = {best(ours.stream, times.stream), best(ours.graph, times.graph)};
      tell(name.data(), times);
    }
    Times theirs, symmetric;
    if (options_.takes("peers")) theirs = measure_nccl("NCCL", nccl_, ours_, bytes, right);
    tell("nccl", theirs);
    if (windows_ && options_.takes("peers"))
      symmetric = measure_nccl("NCCL in symmetric windows", *symmetric_, *windows_, bytes, right);
    tell("nccl_symmetric", symmetric);
    theirs = {best(theirs.stream, symmetric.stream), best(theirs.graph, symmetric.graph)};
    const auto ratio = [&](double peer, double mine) {
      return number(peer < 0 || mine < 0 ? -1 : peer / mine, "%5.2f", "    -");
    };
    const double moved = 2.0 * (node_.ranks() - 1) / node_.ranks() * static_cast<double>(bytes);
    std::printf("%10lu%s | %s %s", bytes, line.c_str(), ratio(theirs.stream, ours.stream).c_str(),
                ratio(theirs.graph, ours.graph).c_str());
    std::printf(ours.graph < 0 ? "\n" : "  (%.0f GB/s)\n", moved / ours.graph * 1e-3);
    std::fflush(stdout);
    json_ += (json_.empty() ? "" : ",\n") + std::string("  {\"ranks\": ") +
             std::to_string(node_.ranks()) + ", \"bytes\": " + std::to_string(bytes) +
             ", \"dtype\": \"float16\", \"checked\": \"" +
             (bytes <= kWholeBytes ? "all" : "sampled") +
             "\", \"light_gbs\": " + number(light_gbs_.value_or(-1), "%.1f", "null") + json + "}";
    return right;
  }
  void save() const {
    if (std::FILE* file = std::fopen(options_.json.c_str(), "w")) {
      std::fprintf(file, "[\n%s\n]\n", json_.c_str());
      std::fclose(file);
    }
  }

  static std::string_view name_in_stream(unsigned codec) {
    return codec == 0 ? "in_stream" : text_of(static_cast<Codec>(codec));
  }

  GpuNode& node_;
  std::unique_ptr<InStreamContender> in_stream_;
  NcclPeer nccl_;
  std::optional<NcclPeer> symmetric_;
  const Options options_;
  GpuClock clock_;
  Buffers ours_;
  std::optional<Buffers> windows_;
  std::vector<cudaStream_t> streams_;
  std::optional<double> light_gbs_;
  std::vector<std::vector<std::uint16_t>> patterns_;  // by rank
  std::vector<std::uint16_t> plain_, got_;
  std::vector<std::uint16_t> coded_[kCodecs];
  const std::vector<std::uint16_t>* expected_ = &plain_;
  std::string json_;
};

int run(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--ranks") options.ranks = std::atoi(argv[i + 1]);
    if (flag == "--nccl") options.nccl = argv[i + 1];
    if (flag == "--json") options.json = argv[i + 1];
    if (flag == "--blocks") options.blocks = static_cast<std::uint32_t>(std::atoi(argv[i + 1]));
    if (flag == "--only") options.only = argv[i + 1];
    if (flag == "--codecs") options.codecs = true;
    if (flag == "--from") options.from_bytes = static_cast<std::uint64_t>(std::atoll(argv[i + 1]));
  }
  auto node = GpuNode::open(options.ranks, kMostBytes);
  if (!node) return std::fprintf(stderr, "%s\n", node.error().to_string().c_str()), 1;
  auto nccl = NcclPeer::open(options.nccl, options.ranks);
  if (!nccl) return std::fprintf(stderr, "%s\n", nccl.error().to_string().c_str()), 1;
  auto second = NcclPeer::open(options.nccl, options.ranks);
  std::optional<NcclPeer> symmetric;
  if (second) symmetric = std::move(*second);
  std::unique_ptr<InStreamContender> in_stream;
  if (options.codecs) {
    auto opened =
        InStreamContender::open(*node, options.blocks == 0 ? kMaxInStreamBlocks : options.blocks);
    if (!opened) return std::fprintf(stderr, "%s\n", opened.error().to_string().c_str()), 1;
    in_stream = std::make_unique<InStreamContender>(std::move(*opened));
  }
  return Bench(*node, std::move(in_stream), std::move(*nccl), std::move(symmetric), options).run()
             ? 0
             : 1;
}

}  // namespace
}  // namespace arcomm::gpu

int main(int argc, char** argv) {
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::setenv("NCCL_NVLS_ENABLE", "0", 1);
  return arcomm::gpu::run(argc, argv);
}

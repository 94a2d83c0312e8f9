#include "tests/gpu/soak/soak_lane.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "tests/gpu/service/client/client_options.h"

namespace arcomm::gpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kLargestBytes[SoakLane::kChains] = {16 << 10, 512 << 10, 4 << 20};
// Beyond the operations' own deadline, at which they end by themselves.
constexpr std::chrono::seconds kGrace{10};

}  // namespace

SoakLane::SoakLane(std::uint32_t number, const arcUniqueId& id, std::mt19937_64& shared) {
  arc(arcCommInitRank(&comm_, options.ranks, id, options.rank), "arcCommInitRank");
  for (cudaStream_t& stream : streams_)
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  cuda(cudaEventCreateWithFlags(&moved_, cudaEventDisableTiming), "cudaEventCreate");
  cuda(cudaMalloc(reinterpret_cast<void**>(&findings_), sizeof(Findings)), "cudaMalloc");
  cuda(cudaMallocHost(reinterpret_cast<void**>(&seen_), sizeof(Findings)), "cudaMallocHost");
  forget_findings();
  for (std::uint32_t i = 0; i < kChains; ++i) {
    const std::uint32_t chain = number * kChains + i;
    chains_.push_back(std::make_unique<SoakChain>(SoakChain::Parts{
        .number = chain,
        .comm = comm_,
        .seed = shared(),
        .largest_bytes = kLargestBytes[i],
        .is_arc_memory = chain % 2 == 0,
    }));
    // The first use of its memory is a call, that of the others' a capture.
    if (i == 0) chains_.back()->call(stream());
    chains_.back()->capture(stream());
  }
  settle("the first calls");
}

void SoakLane::change_stream() {
  cuda(cudaEventRecord(moved_, stream()), "cudaEventRecord");
  current_ = (current_ + 1) % streams_.size();
  cuda(cudaStreamWaitEvent(stream(), moved_, 0), "cudaStreamWaitEvent");
}

void SoakLane::look(std::size_t chain, std::uint64_t replay, std::uint32_t pattern) {
  chains_[chain]->look(replay, pattern, findings_, stream());
}

void SoakLane::wait(const char* what) {
  const Clock::time_point deadline =
      Clock::now() + std::chrono::milliseconds(options.timeout_ms) + kGrace;
  for (cudaStream_t stream : streams_) {
    cudaError_t state = cudaErrorNotReady;
    while ((state = cudaStreamQuery(stream)) == cudaErrorNotReady) {
      if (Clock::now() >= deadline) die(std::string("a stream hangs in ") + what);
    }
    cuda(state, what);
  }
}

void SoakLane::settle(const char* what) {
  read_findings();
  wait(what);
  arcResult_t state = arcSuccess;
  arc(arcCommGetAsyncError(comm_, &state), "arcCommGetAsyncError");
  arc(state, what);
  if (seen_->wrong == 0) return;
  const auto kept = std::min<unsigned long long>(seen_->wrong, Findings::kKept);
  const WrongWord& first = *std::min_element(
      seen_->kept, seen_->kept + kept, [](const WrongWord& one, const WrongWord& other) {
        return std::pair(one.at.replay, one.word) < std::pair(other.at.replay, other.word);
      });
  die("wrong words: " + std::to_string(seen_->wrong) +
      "; the first: " + chains_[first.at.chain % kChains]->describe(first));
}

void SoakLane::try_the_comparison() {
  chains_[0]->poison(stream());
  look(0, 0, 0);
  read_findings();
  wait("trying the comparison");
  if (seen_->wrong == 0) die("poison in place of results was not seen to be wrong");
  forget_findings();
}

void SoakLane::leave() {
  arc(arcCommDestroy(comm_), "arcCommDestroy");
  for (const std::unique_ptr<SoakChain>& chain : chains_) chain->let_go();
}

void SoakLane::read_findings() {
  cuda(cudaMemcpyAsync(seen_, findings_, sizeof(Findings), cudaMemcpyDeviceToHost, stream()),
       "downloading");
}

void SoakLane::forget_findings() {
  cuda(cudaMemsetAsync(findings_, 0, sizeof(Findings), stream()), "clearing");
}

}  // namespace arcomm::gpu

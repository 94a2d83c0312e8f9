#include "tests/gpu/soak/soak_chain.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <random>

#include "tests/gpu/service/client/client_options.h"

namespace arcomm::gpu {
namespace {

constexpr DType kTypes[] = {DType::Float32, DType::Float16, DType::BFloat16, DType::Int32};
constexpr ReduceOp kOps[] = {ReduceOp::Sum, ReduceOp::Sum, ReduceOp::Max, ReduceOp::Avg};
constexpr std::uint64_t kSteps = 5;
constexpr std::uint64_t kFewestBytes = 8;
constexpr std::uint64_t kGuardBytes = 32;
constexpr std::uint64_t kRegionBytes = 256;
constexpr int kChainPoison = 0xff;

std::uint64_t up_to(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::byte* on_gpu(const Bytes& bytes) {
  void* place = nullptr;
  cuda(cudaMalloc(&place, bytes.size()), "cudaMalloc");
  cuda(cudaMemcpy(place, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "uploading");
  return static_cast<std::byte*>(place);
}

}  // namespace

SoakChain::SoakChain(const Parts& parts) : parts_(parts) {
  plan();
  place();
  void* memory = nullptr;
  if (parts_.is_arc_memory) {
    arc(arcMemAlloc(&memory, bytes_), "arcMemAlloc");
  } else {
    cuda(cudaMalloc(&memory, bytes_), "cudaMalloc");
  }
  memory_ = static_cast<std::byte*>(memory);
  cuda(cudaMemset(memory_, kChainPoison, bytes_), "poisoning");
  for (std::uint32_t pattern = 0; pattern < kPatterns; ++pattern)
    images_.push_back(images_of(pattern));
  // The legacy stream's work; ours wait for none of it.
  cuda(cudaDeviceSynchronize(), "uploading");
}

// What is asked for; where it lies comes later.
void SoakChain::plan() {
  std::mt19937_64 random(parts_.seed);
  const auto below = [&random](std::uint64_t limit) { return random() % limit; };
  const auto magnitudes =
      static_cast<std::uint64_t>(std::bit_width(parts_.largest_bytes / kFewestBytes));
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    Step step;
    step.shape = {.dtype = kTypes[below(std::size(kTypes))], .op = kOps[below(std::size(kOps))]};
    std::uint64_t bytes = i == 0 ? kFewestBytes : parts_.largest_bytes;
    if (i > 1) {
      bytes >>= below(magnitudes);
      bytes -= below(bytes / 2);
    }
    step.shape.count = bytes / size_of(step.shape.dtype);
    if (i != 0 && below(3) != 0) step.shape.count = (step.shape.count - 1) | 1;
    steps_.push_back(step);
  }
  std::shuffle(steps_.begin(), steps_.end(), random);
  for (std::uint64_t i = 1; i < kSteps; ++i) {
    Step& step = steps_[i];
    step.follows = below(4) == 0;
    if (!step.follows) continue;
    step.shape.count = steps_[i - 1].shape.count;
    step.shape.dtype = steps_[i - 1].shape.dtype;
  }
}

// Three regions: inputs only | in place | results only, so that one copy fills all inputs and one
// comparison reads all results. Guards between operations are poison in every image.
void SoakChain::place() {
  std::mt19937_64 random(parts_.seed + 1);
  std::uint64_t ends[3] = {};
  const auto take = [&](std::uint64_t& end, const Shape& shape) {
    // At any element: aligned to 16 bytes as often as not.
    const std::uint64_t shift = random() % 2 == 0 ? 0 : random() % 8;
    const std::uint64_t at = up_to(end + kGuardBytes, 16) + shift * size_of(shape.dtype);
    end = at + shape.bytes();
    return at;
  };
  std::vector<bool> in_place;
  for (Step& step : steps_) {
    in_place.push_back(!step.follows && random() % 3 == 0);
    if (in_place.back()) {
      step.send = step.recv = take(ends[1], step.shape);
      continue;
    }
    if (!step.follows) step.send = take(ends[0], step.shape);
    step.recv = take(ends[2], step.shape);
  }
  results_at_ = up_to(ends[0] + kGuardBytes, kRegionBytes);
  input_bytes_ = results_at_ + up_to(ends[1] + kGuardBytes, kRegionBytes);
  bytes_ = input_bytes_ + up_to(ends[2] + kGuardBytes, kRegionBytes);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    step.recv += in_place[i] ? results_at_ : input_bytes_;
    if (in_place[i]) step.send = step.recv;
    if (step.follows) step.send = steps_[i - 1].recv;
  }
}

SoakChain::Images SoakChain::images_of(std::uint32_t pattern) const {
  Bytes inputs(input_bytes_, std::byte{kChainPoison}),
      expected(result_bytes(), std::byte{kChainPoison});
  Bytes before;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    std::vector<Bytes> sent;
    sent.reserve(static_cast<std::size_t>(options.ranks));
    for (int rank = 0; rank < options.ranks; ++rank) {
      sent.push_back(step.follows ? before
                                  : sent_by(rank, step.shape, parts_.seed + pattern * kSteps + i));
    }
    if (!step.follows) {
      const Bytes& mine = sent[static_cast<std::size_t>(options.rank)];
      std::copy(mine.begin(), mine.end(), inputs.begin() + static_cast<std::ptrdiff_t>(step.send));
    }
    before = reduced(step.shape, sent);
    std::copy(before.begin(), before.end(),
              expected.begin() + static_cast<std::ptrdiff_t>(step.recv - results_at_));
  }
  Images images{.inputs = on_gpu(inputs), .results = on_gpu(expected), .expected = {}};
  images.expected = std::move(expected);
  return images;
}

void SoakChain::capture(cudaStream_t stream) {
  if (graph_ != nullptr) cuda(cudaGraphDestroy(graph_), "cudaGraphDestroy");
  // The strictest mode: nothing unsafe may be called by any thread.
  cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  call(stream);
  cuda(cudaStreamEndCapture(stream, &graph_), "cudaStreamEndCapture");
  instantiate();
}

void SoakChain::instantiate() {
  if (runnable_ != nullptr) cuda(cudaGraphExecDestroy(runnable_), "cudaGraphExecDestroy");
  cuda(cudaGraphInstantiate(&runnable_, graph_, 0), "cudaGraphInstantiate");
}

void SoakChain::poison(cudaStream_t stream) {
  cuda(cudaMemsetAsync(memory_ + results_at_, kChainPoison, result_bytes(), stream), "poisoning");
}

void SoakChain::fill(std::uint32_t pattern, cudaStream_t stream) {
  cuda(cudaMemcpyAsync(memory_, images_[pattern].inputs, input_bytes_, cudaMemcpyDeviceToDevice,
                       stream),
       "writing inputs");
}

void SoakChain::replay(cudaStream_t stream) {
  cuda(cudaGraphLaunch(runnable_, stream), "cudaGraphLaunch");
}

void SoakChain::call(cudaStream_t stream) {
  for (const Step& step : steps_) {
    arc(arcAllReduce(memory_ + step.send, memory_ + step.recv, step.shape.count,
                     static_cast<arcDataType_t>(step.shape.dtype),
                     static_cast<arcRedOp_t>(step.shape.op), parts_.comm, stream),
        "arcAllReduce");
  }
}

void SoakChain::look(std::uint64_t replay, std::uint32_t pattern, Findings* findings,
                     cudaStream_t stream) {
  cuda(compare(reinterpret_cast<const std::uint32_t*>(memory_ + results_at_),
               reinterpret_cast<const std::uint32_t*>(images_[pattern].results),
               result_bytes() / sizeof(std::uint32_t),
               {.replay = replay, .chain = parts_.number, .pattern = pattern}, findings, stream),
       "comparing");
}

std::size_t SoakChain::compare_on_host(std::uint32_t pattern, cudaStream_t stream) {
  Bytes here(result_bytes());
  cuda(cudaMemcpyAsync(here.data(), memory_ + results_at_, here.size(), cudaMemcpyDeviceToHost,
                       stream),
       "downloading");
  cuda(cudaStreamSynchronize(stream), "downloading");
  const Bytes& expected = images_[pattern].expected;
  WrongWord wrong{.at = {.replay = current_replay, .chain = parts_.number, .pattern = pattern}};
  for (; wrong.word < expected.size() / sizeof(std::uint32_t); ++wrong.word) {
    std::memcpy(&wrong.got, here.data() + wrong.word * sizeof(wrong.got), sizeof(wrong.got));
    std::memcpy(&wrong.expected, expected.data() + wrong.word * sizeof(wrong.got),
                sizeof(wrong.expected));
    if (wrong.got != wrong.expected) die("by the host's comparison, " + describe(wrong));
  }
  return steps_.size();
}

const SoakChain::Step* SoakChain::step_at(std::uint64_t byte) const {
  const auto holds = [byte](const Step& step) {
    return byte >= step.recv && byte < step.recv + step.shape.bytes();
  };
  const auto found = std::find_if(steps_.begin(), steps_.end(), holds);
  return found != steps_.end() ? &*found : nullptr;
}

std::string SoakChain::describe(const WrongWord& wrong) const {
  char text[400];
  // The first wrong byte of the word says whose it is.
  std::uint32_t at = 0;
  while (at < 3 && ((wrong.got ^ wrong.expected) >> (8 * at) & 0xff) == 0) ++at;
  const std::uint64_t byte = results_at_ + wrong.word * sizeof(wrong.got) + at;
  const Step* step = step_at(byte);
  const auto replay = static_cast<unsigned long long>(wrong.at.replay);
  if (step == nullptr) {
    std::snprintf(text, sizeof(text),
                  "replay %llu, chain %u, inputs %u: between the operations' results, at byte "
                  "%llu of the chain's memory, was written: got %#x, expected %#x",
                  replay, wrong.at.chain, wrong.at.pattern, static_cast<unsigned long long>(byte),
                  wrong.got, wrong.expected);
    return text;
  }
  const std::size_t element = size_of(step->shape.dtype);
  // Elements of two bytes: which half of the word. Of four: elements lie on words.
  const std::uint32_t bits = element == 2 ? at / 2 * 16 : 0;
  const std::uint32_t mask = element == 2 ? 0xffff : 0xffffffff;
  std::snprintf(
      text, sizeof(text),
      "replay %llu, chain %u, inputs %u, operation %td of %zu (%s of %llu %s, %s%s): element %llu: "
      "got %#x, expected %#x",
      replay, wrong.at.chain, wrong.at.pattern, step - steps_.data() + 1, steps_.size(),
      std::string(text_of(step->shape.op)).c_str(),
      static_cast<unsigned long long>(step->shape.count),
      std::string(text_of(step->shape.dtype)).c_str(),
      step->send == step->recv ? "in place" : "out of place",
      step->follows ? ", on the result of the one before" : "",
      static_cast<unsigned long long>((byte - step->recv) / element), wrong.got >> bits & mask,
      wrong.expected >> bits & mask);
  return text;
}

void SoakChain::let_go() {
  cuda(cudaGraphExecDestroy(runnable_), "cudaGraphExecDestroy");
  cuda(cudaGraphDestroy(graph_), "cudaGraphDestroy");
  if (parts_.is_arc_memory) arc(arcMemFree(memory_), "arcMemFree");
}

}  // namespace arcomm::gpu

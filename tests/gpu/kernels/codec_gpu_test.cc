// The GPU's codecs beside the golden one, bit for bit: one GPU is enough. Run from a bundle, or
// alone.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/host/reference.h"
#include "kernels/host/reference_coded.h"
#include "tests/gpu/kernels/coded_elements.h"
#include "tests/gpu/kernels/coded_packets.h"

namespace arcomm::gpu {
namespace {

constexpr unsigned char kPoison = 0xc3;
constexpr std::uint64_t kMostCount = 40'000;

// Memory on the GPU, from `shift` bytes behind its start.
class OnGpu {
 public:
  OnGpu(std::size_t bytes, std::size_t shift) : bytes_(bytes), shift_(shift) {
    EXPECT_EQ(cudaMalloc(&memory_, bytes + shift + 256), cudaSuccess);
    EXPECT_EQ(cudaMemset(memory_, kPoison, bytes + shift + 256), cudaSuccess);
  }
  ~OnGpu() { cudaFree(memory_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  void* at() const { return static_cast<std::byte*>(memory_) + shift_; }
  void put(const Bytes& bytes) const {
    EXPECT_EQ(cudaMemcpy(at(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  Bytes get() const {
    Bytes bytes(bytes_);
    EXPECT_EQ(cudaMemcpy(bytes.data(), at(), bytes_, cudaMemcpyDeviceToHost), cudaSuccess);
    return bytes;
  }
  bool is_poisoned_behind() const {
    Bytes tail(256);
    EXPECT_EQ(cudaMemcpy(tail.data(), static_cast<std::byte*>(at()) + bytes_, tail.size(),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    for (const std::byte one : tail) {
      if (one != std::byte{kPoison}) return false;
    }
    return true;
  }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_, shift_;
};

// The first element that differs, and how; "" where none does. NaNs are equal.
std::string difference(DType dtype, const Bytes& seen, const Bytes& right) {
  const std::size_t size = size_of(dtype);
  for (std::size_t at = 0; at < right.size(); at += size) {
    if (std::memcmp(seen.data() + at, right.data() + at, size) == 0) continue;
    const float a = read(dtype, seen.data() + at), b = read(dtype, right.data() + at);
    if (a != a && b != b) continue;
    return "element " + std::to_string(at / size) + ": " + std::to_string(a) + " and not " +
           std::to_string(b);
  }
  return {};
}

using Of = std::tuple<Codec, DType>;

class GpuCodec : public testing::TestWithParam<Of> {
 protected:
  void expect_golden(ReduceOp op, std::uint64_t count, std::size_t shift, unsigned seed) {
    const auto [codec, dtype] = GetParam();
    SCOPED_TRACE(std::to_string(count) + " elements, " + std::to_string(shift) +
                 " elements behind an aligned place, seed " + std::to_string(seed));
    const std::size_t size = size_of(dtype), bytes = count * size;
    Elements elements(seed);
    const Bytes first = elements.make(dtype, count), second = elements.make(dtype, count);
    const OnGpu a(bytes, shift * size), b(bytes, shift * size), pair(bytes, shift * size),
        one(bytes, shift * size), two(bytes, shift * size);
    a.put(first);
    b.put(second);
    CodedSum sum{.codec = codec,
                 .dtype = dtype,
                 .op = op,
                 .inputs = {a.at(), b.at()},
                 .pair = pair.at(),
                 .one_hop = one.at(),
                 .two_hops = two.at(),
                 .count = count,
                 .vectors = shift == 0};
    ASSERT_EQ(run(sum, nullptr), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    Bytes right(bytes);
    AllReduceArgs args = AllReduceArgs::among(2, count, dtype, op);
    args.codec = codec;
    args.inputs[0] = first.data();
    args.inputs[1] = second.data();
    args.num_outputs = 1;
    args.outputs[0] = right.data();
    reference::all_reduce_range(args, 0, count);
    EXPECT_EQ(difference(dtype, pair.get(), right), "") << "between two";
    EXPECT_EQ(difference(dtype, one.get(), right), "") << "one hop";
    reference::coded_all_reduce_in_two_hops(args, 0, count);
    EXPECT_EQ(difference(dtype, two.get(), right), "") << "two hops";
    for (const OnGpu* memory : {&pair, &one, &two}) EXPECT_TRUE(memory->is_poisoned_behind());
    EXPECT_EQ(difference(dtype, a.get(), first), "") << "an input was written";
  }
};

TEST_P(GpuCodec, MakesTheBitsOfTheGoldenOneOfAnyElements) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    expect_golden(ReduceOp::Sum, kMostCount, 0, seed);
    expect_golden(ReduceOp::Avg, kMostCount, 0, seed + 100);
  }
}

TEST_P(GpuCodec, MakesThemOfAnyCountAndAlignment) {
  for (const std::uint64_t count :
       {1, 15, 16, 17, 31, 32, 33, 895, 896, 897, 1151, 1153, 1664, 1665, 5000})
    for (const std::size_t shift : {0, 1, 3}) expect_golden(ReduceOp::Sum, count, shift, 7);
}

INSTANTIATE_TEST_SUITE_P(All, GpuCodec,
                         testing::Combine(testing::ValuesIn(kRealCodecs),
                                          testing::Values(DType::Float16, DType::BFloat16,
                                                          DType::Float32)),
                         [](const testing::TestParamInfo<Of>& test) {
                           return std::string(text_of(std::get<0>(test.param))) + "_" +
                                  std::string(text_of(std::get<1>(test.param)));
                         });

}  // namespace
}  // namespace arcomm::gpu

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

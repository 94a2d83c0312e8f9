// GPU memory as transport/device.h promises it, over CUDA, and as libarclient maps the daemon's:
// one GPU is enough. Run from a bundle, or alone; links nothing of CUDA but cudart.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cuda/gpu.h"
#include "tests/gpu/kernels/filler.h"
#include "transport/device/cuda/cuda_chunks.h"
#include "transport/device/cuda/cuda_device.h"
#include "transport/device/cuda/cuda_runtime.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kGranule = 2 << 20;

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = CudaDevice::create({});
    ASSERT_TRUE(device.ok()) << device.error().to_string();
    device_ = std::move(*device);
  }
  Memory allocate(std::uint64_t bytes) {
    Result<Memory> memory = device_->allocate(bytes);
    EXPECT_TRUE(memory.ok()) << memory.error().to_string();
    return std::move(*memory);
  }
  MemoryHandle whole(const Memory& memory) {
    MemoryHandle handle;
    handle.kind = MemoryKind::PosixFd;
    handle.length_bytes = handle.allocation_bytes = memory.bytes();
    return handle;
  }
  static void fill(const Memory& memory, int value) {
    ASSERT_EQ(cudaMemset(memory.data(), value, memory.bytes()), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  static bool holds(const void* from, std::uint64_t bytes, unsigned char value) {
    std::vector<unsigned char> seen(bytes);
    if (cudaMemcpy(seen.data(), from, bytes, cudaMemcpyDeviceToHost) != cudaSuccess) return false;
    return std::all_of(seen.begin(), seen.end(), [value](unsigned char b) { return b == value; });
  }

  std::unique_ptr<CudaDevice> device_;
};

TEST_F(CudaDeviceTest, AllocatesZeroedGranules) {
  const Memory memory = allocate(1);
  EXPECT_EQ(memory.bytes(), kGranule);
  EXPECT_TRUE(holds(memory.data(), memory.bytes(), 0));
  EXPECT_FALSE(device_->allocate(0).ok());
}

std::uint64_t free_bytes() {
  std::size_t left = 0, all = 0;
  EXPECT_EQ(cudaMemGetInfo(&left, &all), cudaSuccess);
  return left;
}

TEST_F(CudaDeviceTest, MemoryGrowsWhereItLiesAndIsCutBack) {
  constexpr std::uint64_t kMore = 64 * kGranule;
  auto memory = device_->allocate_growing(kGranule, kGranule + kMore);
  ASSERT_TRUE(memory.ok()) << memory.error().to_string();
  fill(*memory, 0x5a);
  const std::byte* const data = memory->data();
  const std::uint64_t before = free_bytes();
  ASSERT_TRUE(memory->grow(kGranule + kMore - 1).ok());
  EXPECT_EQ(before - free_bytes(), kMore);
  EXPECT_EQ(memory->data(), data);
  ASSERT_EQ(memory->bytes(), kGranule + kMore);
  EXPECT_TRUE(holds(data, kGranule, 0x5a));
  fill(*memory, 0x33);
  EXPECT_TRUE(holds(data, memory->bytes(), 0x33));
  EXPECT_EQ(memory->grow(memory->bytes() + 1).error().code, ErrorCode::OutOfRange);
  memory->cut_back();
  EXPECT_EQ(memory->bytes(), kGranule);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_TRUE(holds(data, kGranule, 0x33));
  EXPECT_TRUE(memory->grow(2 * kGranule).ok()) << "again";
  EXPECT_FALSE(allocate(kGranule).grow(2 * kGranule).ok()) << "nothing was reserved";
}

// Somebody's kernel that fills the GPU until end(), or the end of the block.
class StrangersKernel {
 public:
  void start() {
    ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&end_), sizeof(*end_), cudaHostAllocMapped),
              cudaSuccess);
    *end_ = 0;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(gpu::fill_gpu(end_, stream_), cudaSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  bool runs() const { return cudaStreamQuery(stream_) == cudaErrorNotReady; }
  void end() {
    __atomic_store_n(end_, 1, __ATOMIC_RELEASE);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  ~StrangersKernel() {
    if (end_ != nullptr) __atomic_store_n(end_, 1, __ATOMIC_RELEASE);
    if (stream_ != nullptr) {
      EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    }
    if (end_ != nullptr) {
      EXPECT_EQ(cudaFreeHost(end_), cudaSuccess);
    }
  }

 private:
  std::uint32_t* end_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

// A memset is a kernel, and waited for theirs: the thread that allocated stood still as long.
TEST_F(CudaDeviceTest, AllocatesZeroedMemoryWhileSomebodysKernelFillsTheGpu) {
  {
    const Memory used = allocate(64 * kGranule);  // may come back, and is not zero
    fill(used, 0x77);
  }
  StrangersKernel strangers;
  ASSERT_NO_FATAL_FAILURE(strangers.start());
  std::vector<Memory> made;
  for (const std::uint64_t granules : {1, 64, 256}) {
    const auto since = std::chrono::steady_clock::now();
    Result<Memory> memory = device_->allocate(granules * kGranule);
    const auto took = std::chrono::steady_clock::now() - since;
    EXPECT_LT(took, std::chrono::milliseconds(100));
    std::printf("%llu MB allocated in %.1f ms beside a kernel that fills the GPU\n",
                static_cast<unsigned long long>(granules * 2),
                std::chrono::duration<double, std::milli>(took).count());
    ASSERT_TRUE(memory.ok()) << memory.error().to_string();
    made.push_back(std::move(*memory));
  }
  // The second of two pieces is refused: what had been mapped is not given back while a kernel of
  // this device waits for room, to clear what was allocated.
  EXPECT_TRUE(device_->is_clearing());
  std::vector<MemoryChunk> chunks;
  for (const Memory* one : {&made[0], &made[1]}) {
    Result<UniqueFd> descriptor = one->export_fd();
    ASSERT_TRUE(descriptor.ok()) << descriptor.error().to_string();
    chunks.push_back({.memory = std::move(*descriptor), .bytes = one->bytes()});
  }
  chunks[1].bytes *= 2;
  const auto since = std::chrono::steady_clock::now();
  Memory rest;
  EXPECT_EQ(device_->import_chunks(chunks, 0, 1, rest).error().code, ErrorCode::InvalidArgument);
  EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::milliseconds(100));
  EXPECT_TRUE(rest);
  EXPECT_TRUE(strangers.runs()) << "it did not fill the GPU meanwhile";
  ASSERT_NO_FATAL_FAILURE(strangers.end());
  for (const Memory& memory : made) EXPECT_TRUE(holds(memory.data(), memory.bytes(), 0));
}

// 8 GB take a copy engine longer than who allocates may wait.
TEST_F(CudaDeviceTest, WhatIsNotClearedInTimeKeepsItsTokenUntilItIsAbandoned) {
  StrangersKernel strangers;
  ASSERT_NO_FATAL_FAILURE(strangers.start());
  auto first = std::make_shared<int>(), second = std::make_shared<int>();
  const std::weak_ptr<int> of_first = first, of_second = second;
  constexpr std::uint64_t kBytes = 4096 * kGranule;
  EXPECT_EQ(device_->allocate_for(std::move(first), kBytes).error().code, ErrorCode::Unavailable);
  EXPECT_FALSE(of_first.expired());
  EXPECT_EQ(device_->allocate_for(second, kBytes).error().code, ErrorCode::Unavailable);
  const auto asked = std::chrono::steady_clock::now();
  EXPECT_TRUE(of_first.expired()) << "another one goes on with it, and pays";
  EXPECT_TRUE(device_->take_abandoned(true).empty()) << "somebody waits for it";
  EXPECT_TRUE(device_->keeps_uncleared());
  second.reset();
  EXPECT_FALSE(of_second.expired());
  // It is held while the kernel that tried for room still waits for it, behind the stranger's.
  ASSERT_NO_FATAL_FAILURE(strangers.end());
  std::vector<Memory> abandoned;
  while (abandoned.empty() &&
         std::chrono::steady_clock::now() < asked + std::chrono::milliseconds(150))
    abandoned = device_->take_abandoned(true);
  EXPECT_EQ(abandoned.size(), 1u) << "nobody else will come for it";
  EXPECT_FALSE(device_->keeps_uncleared());
  EXPECT_FALSE(of_second.expired());
  abandoned.clear();
  EXPECT_TRUE(of_second.expired());
}

TEST_F(CudaDeviceTest, ImportsItsOwnExportByTheOneImporter) {
  const Memory memory = allocate(3 * kGranule);
  fill(memory, 0x5a);
  Result<UniqueFd> descriptor = memory.export_fd();
  ASSERT_TRUE(descriptor.ok());
  MemoryHandle part = whole(memory);
  part.offset_bytes = 4096;
  part.length_bytes = 100;
  Memory mapped;
  const Status imported = device_->import(part, descriptor->get(), mapped);
  ASSERT_TRUE(imported.ok()) << imported.error().to_string();
  EXPECT_EQ(mapped.bytes(), 100u);
  EXPECT_NE(mapped.data(), memory.data() + 4096);
  EXPECT_TRUE(holds(mapped.data(), 100, 0x5a));
  EXPECT_FALSE(mapped.export_fd().ok()) << "it is its maker's to export";
}

TEST_F(CudaDeviceTest, RefusesWhatIsNotAsItsMakerSays) {
  const Memory memory = allocate(kGranule);
  Result<UniqueFd> descriptor = memory.export_fd();
  ASSERT_TRUE(descriptor.ok());
  MemoryHandle larger = whole(memory);
  larger.allocation_bytes = 2 * kGranule;
  Memory rest;
  EXPECT_EQ(device_->import(larger, descriptor->get(), rest).error().code,
            ErrorCode::InvalidArgument);
  MemoryHandle beyond = whole(memory);
  beyond.offset_bytes = 1;
  EXPECT_EQ(device_->import(beyond, descriptor->get(), rest).error().code, ErrorCode::OutOfRange);
  const UniqueFd none(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(device_->import(whole(memory), none.get(), rest).error().code,
            ErrorCode::InvalidArgument);
  const Memory after = allocate(kGranule);  // nothing of that harmed the context
  EXPECT_TRUE(holds(after.data(), after.bytes(), 0));
}

TEST_F(CudaDeviceTest, MapsChunksBehindOneAnother) {
  const Memory first = allocate(kGranule), second = allocate(2 * kGranule);
  fill(first, 1);
  fill(second, 2);
  std::vector<MemoryChunk> chunks;
  for (const Memory* one : {&first, &second}) {
    Result<UniqueFd> descriptor = one->export_fd();
    ASSERT_TRUE(descriptor.ok());
    chunks.push_back({.memory = std::move(*descriptor), .bytes = one->bytes()});
  }
  Memory mapped;
  const Status imported = device_->import_chunks(chunks, kGranule - 100, 200, mapped);
  ASSERT_TRUE(imported.ok()) << imported.error().to_string();
  EXPECT_TRUE(holds(mapped.data(), 100, 1));
  EXPECT_TRUE(holds(mapped.data() + 100, 100, 2));
  chunks[1].bytes = 5;
  Memory rest;
  const Status refused = device_->import_chunks(chunks, 0, 1, rest);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::InvalidArgument);
  EXPECT_NE(refused.error().message.find("piece 1"), std::string::npos) << refused.error().message;
}

TEST_F(CudaDeviceTest, LibarclientMapsWhatTheDaemonMade) {
  const Memory memory = allocate(kGranule);
  fill(memory, 0x77);
  Result<UniqueFd> descriptor = memory.export_fd();
  ASSERT_TRUE(descriptor.ok());
  const Result<client::Gpus*> gpus = client::load_gpus();
  ASSERT_TRUE(gpus.ok()) << gpus.error().to_string();
  const auto gpu = (*gpus)->current("");
  ASSERT_TRUE(gpu.ok()) << gpu.error().to_string();
  EXPECT_EQ((*gpu)->uuid(), device_->name());
  {
    const auto mapped = (*gpu)->import_memory(descriptor->get(), memory.bytes());
    ASSERT_TRUE(mapped.ok()) << mapped.error().to_string();
    std::byte word[64];
    ASSERT_TRUE(
        (*gpu)->read(word, (*mapped)->address(), sizeof(word), std::chrono::seconds(5)).ok());
    EXPECT_EQ(word[63], std::byte{0x77});
  }
  const auto refused = (*gpu)->import_memory(descriptor->get(), 2 * kGranule);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("the daemon's GPU memory"), std::string::npos);
  const auto held = (*gpu)->hold_chunk(memory.data());
  ASSERT_TRUE(held.ok()) << held.error().to_string();
  EXPECT_TRUE((*gpu)->is_in_place(**held));
}

// What a communicator of one rank does on its stream: any memory serves, pools' included.
TEST_F(CudaDeviceTest, LibarclientCopiesInAStreamAndCounts) {
  const Result<client::Gpus*> gpus = client::load_gpus();
  ASSERT_TRUE(gpus.ok()) << gpus.error().to_string();
  const auto gpu = (*gpus)->current("");
  ASSERT_TRUE(gpu.ok()) << gpu.error().to_string();
  constexpr std::uint64_t kBytes = (1 << 20) + 6;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  unsigned char *from = nullptr, *to = nullptr;
  for (unsigned char** place : {&from, &to})
    ASSERT_EQ(cudaMallocAsync(reinterpret_cast<void**>(place), kBytes + 2, stream), cudaSuccess);
  const Memory counts = allocate(kGranule);
  auto* const left = reinterpret_cast<std::uint32_t*>(counts.data());
  ASSERT_EQ(cudaMemsetAsync(from, 0x21, kBytes + 2, stream), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(to, 0, kBytes + 2, stream), cudaSuccess);
  EXPECT_TRUE((*gpu)->range_of(from).ok());
  for (int i = 0; i < 3; ++i) {
    const Status copied = (*gpu)->copy(to + 2, from, kBytes, left, stream);
    ASSERT_TRUE(copied.ok()) << copied.error().to_string();
  }
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_TRUE(holds(to, 2, 0));
  EXPECT_TRUE(holds(to + 2, kBytes, 0x21));
  EXPECT_TRUE(holds(counts.data(), 1, 3));

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runs = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_TRUE((*gpu)->copy(from, to, 2, nullptr, stream).ok());
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&runs, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(runs, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_TRUE(holds(from, 2, 0));
  EXPECT_TRUE(holds(counts.data(), 1, 3)) << "a graph's are not counted";
  cudaGraphExecDestroy(runs);
  cudaGraphDestroy(graph);
  for (unsigned char* place : {from, to}) cudaFreeAsync(place, stream);
  cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
}

TEST_F(CudaDeviceTest, TheLoaderFindsEveryFunctionAndStarts) {
  const Result<CudaDriver> driver = CudaDriver::load();
  ASSERT_TRUE(driver.ok()) << driver.error().to_string();
  EXPECT_TRUE(driver->start().ok());
  EXPECT_STREQ(driver->name_of(CUDA_ERROR_INVALID_VALUE), "CUDA_ERROR_INVALID_VALUE");
  EXPECT_EQ(driver->failed(CUDA_ERROR_OUT_OF_MEMORY, "x").code, ErrorCode::ResourceExhausted);
}

}  // namespace
}  // namespace arcomm

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

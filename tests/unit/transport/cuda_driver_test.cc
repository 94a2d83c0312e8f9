#include "transport/device/cuda/cuda_driver.h"

#include <gtest/gtest.h>

#include "transport/device/cuda/cuda_chunks.h"

namespace arcomm {
namespace {

TEST(CudaDriver, SaysThatThereIsNoDriver) {
  const Result<CudaDriver> driver = CudaDriver::load("libcuda-of-no-machine.so.1");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code, ErrorCode::Unavailable);
  EXPECT_EQ(driver.error().reason, Reason::Unsupported);
  EXPECT_NE(driver.error().message.find("libcuda-of-no-machine.so.1"), std::string::npos);
}

TEST(CudaDriver, NamesAFunctionThatAnOldDriverLacks) {
  const Result<CudaDriver> driver = CudaDriver::load("libm.so.6");  // it has none of them
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code, ErrorCode::Unavailable);
  EXPECT_NE(driver.error().message.find("lacks cu"), std::string::npos) << driver.error().message;
}

// A driver of this test's own: it counts what it is asked, and refuses from the n-th mapping on.
struct FakeVmm {
  int handles = 0, mapped = 0, reserved = 0, descriptor = -1, refuse_from = 100;
};
FakeVmm vmm;

CudaDriver fake_driver() {
  vmm = {};
  CudaDriver driver;
  driver.cuGetErrorName_ = [](CUresult, const char** name) {
    *name = "CUDA_ERROR_OF_THE_TEST";
    return CUDA_SUCCESS;
  };
  driver.cuMemAddressReserve_ = [](CUdeviceptr* base, size_t, size_t, CUdeviceptr,
                                   unsigned long long) {
    *base = 0x1000'0000;
    ++vmm.reserved;
    return CUDA_SUCCESS;
  };
  driver.cuMemAddressFree_ = [](CUdeviceptr, size_t) {
    --vmm.reserved;
    return CUDA_SUCCESS;
  };
  driver.cuMemImportFromShareableHandle_ = [](CUmemGenericAllocationHandle* handle, void* from,
                                              CUmemAllocationHandleType type) {
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
      vmm.descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(from));
    *handle = static_cast<CUmemGenericAllocationHandle>(++vmm.handles);
    return CUDA_SUCCESS;
  };
  driver.cuMemRelease_ = [](CUmemGenericAllocationHandle) {
    --vmm.handles;
    return CUDA_SUCCESS;
  };
  driver.cuMemMap_ = [](CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                        unsigned long long) {
    if (vmm.mapped + 1 >= vmm.refuse_from) return CUDA_ERROR_INVALID_VALUE;
    ++vmm.mapped;
    return CUDA_SUCCESS;
  };
  driver.cuMemUnmap_ = [](CUdeviceptr, size_t) {
    --vmm.mapped;
    return CUDA_SUCCESS;
  };
  driver.cuMemSetAccess_ = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
    return CUDA_SUCCESS;
  };
  return driver;
}

constexpr std::uint64_t kGranule = 2 << 20;
constexpr int kHere[] = {0};

TEST(CudaChunks, MapsPiecesBehindOneAnotherAndGivesAllBack) {
  const CudaDriver driver = fake_driver();
  {
    const CudaChunks::Piece chunks[] = {{.descriptor = 7, .bytes = kGranule},
                                        {.bytes = 2 * kGranule}};
    CudaChunks mapped;
    const Status imported = mapped.import(driver, chunks, kHere);
    ASSERT_TRUE(imported.ok()) << imported.error().to_string();
    EXPECT_EQ(mapped.view().bytes, 3 * kGranule);
    EXPECT_EQ(vmm.descriptor, 7);
    EXPECT_EQ(vmm.mapped, 2);
    EXPECT_EQ(vmm.handles, 0) << "the mapping keeps the memory";
    const CudaChunks moved = std::move(mapped);
    EXPECT_EQ(moved.view().bytes, 3 * kGranule);
  }
  EXPECT_EQ(vmm.mapped, 0);
  EXPECT_EQ(vmm.reserved, 0);
}

// Giving it back takes as long as whatever fills the GPU: whoever imports says when.
TEST(CudaChunks, WhatWasMappedBeforeAFailureLastsUntilTheObjectGoes) {
  const CudaDriver driver = fake_driver();
  vmm.refuse_from = 2;
  const CudaChunks::Piece chunks[] = {{.bytes = kGranule}, {.bytes = kGranule}};
  {
    CudaChunks mapped;
    ASSERT_FALSE(mapped.import(driver, chunks, kHere).ok());
    const CudaChunks kept = std::move(mapped);
    EXPECT_EQ(vmm.mapped, 1);
    EXPECT_EQ(vmm.reserved, 1);
  }
  EXPECT_EQ(vmm.mapped, 0);
  EXPECT_EQ(vmm.reserved, 0);
}

TEST(CudaChunks, NamesThePieceThatIsRefusedAndKeepsNone) {
  const CudaDriver driver = fake_driver();
  vmm.refuse_from = 2;
  const CudaChunks::Piece chunks[] = {{.bytes = kGranule}, {.bytes = kGranule}};
  const CudaChunks::Piece odd[] = {{.bytes = kGranule}, {.bytes = 5}};
  for (const auto& [pieces, said] :
       {std::pair{std::span(chunks), "piece 1, said to have 2097152 bytes"},
        std::pair{std::span(odd), "piece 1, said to have 5 bytes"}}) {
    CudaChunks mapped;
    const Status imported = mapped.import(driver, pieces, kHere);
    ASSERT_FALSE(imported.ok());
    EXPECT_NE(imported.error().message.find(said), std::string::npos) << imported.error().message;
  }
  EXPECT_EQ(vmm.mapped, 0);
  EXPECT_EQ(vmm.handles, 0);
  EXPECT_EQ(vmm.reserved, 0);
}

TEST(CudaChunks, RefusesSizesThatNoGpuHas) {
  const CudaDriver driver = fake_driver();
  const CudaChunks::Piece none{.descriptor = 7, .bytes = 0};
  EXPECT_EQ(CudaChunks().import(driver, {&none, 1}, kHere).error().code, ErrorCode::OutOfRange);
  const CudaChunks::Piece huge[] = {{.bytes = kGranule}, {.bytes = ~std::uint64_t{0}}};
  EXPECT_EQ(CudaChunks().import(driver, huge, kHere).error().code, ErrorCode::OutOfRange);
  EXPECT_EQ(CudaChunks().import(driver, {}, kHere).error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(vmm.reserved, 0);
}

}  // namespace
}  // namespace arcomm

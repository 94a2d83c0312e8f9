// One rank of a communicator on the fake GPU, with a daemon that is this test: it makes tables of
// its own, which the library must keep to.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "client/src/gpu/gpu_member.h"
#include "tests/unit/client/gpu/fake_gpu.h"

namespace arcomm::client {

inline constexpr std::uint64_t kMemoryBytes = 2 << 20;
inline constexpr std::uint64_t kMostInStream = 64 << 10, kMostResident = 96 << 10;

inline UniqueFd memfd(std::uint64_t bytes) {
  UniqueFd fd(::memfd_create("gpu_member_test", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  return fd;
}

class GpuMemberTest : public testing::Test {
 public:
  GpuMemberTest() { make(nullptr); }

  // Not what any daemon makes, so that a library with bounds of its own would be seen.
  static LaunchTable launches(bool is_in_stream) {
    std::vector<LaunchRow> rows;
    if (is_in_stream) {
      rows.push_back({.most_bytes = kMostInStream,
                      .dtypes = bit_of(DType::Float16) | bit_of(DType::Float32),
                      .codecs = bit_of(Codec::None),
                      .path = LaunchPath::InStream,
                      .algorithm = InStreamAlgorithm::OneShotLl16,
                      .bytes_per_block = 4096,
                      .most_blocks = 16});
    }
    rows.push_back(
        {.most_bytes = kMostResident, .codecs = kResidentCodecs, .path = LaunchPath::Resident});
    rows.push_back({});
    return LaunchTable::create(2, std::move(rows)).value();
  }

  void make(std::unique_ptr<GpuExchange> exchange, PostMode post = PostMode::Kernel) {
    const bool is_in_stream = exchange != nullptr;
    make(std::move(exchange), post, launches(is_in_stream));
  }
  void make_alone() {
    make(nullptr, PostMode::Kernel,
         LaunchTable::create(1, {{.codecs = bit_of(Codec::None), .path = LaunchPath::Alone}, {}})
             .value());
  }
  void make(std::unique_ptr<GpuExchange> exchange, PostMode post, LaunchTable table) {
    const std::uint32_t ranks = table.ranks();
    Result<std::unique_ptr<GpuMailbox>> mailbox =
        GpuMailbox::open(*gpu, memfd(kMemoryBytes), kMemoryBytes, memfd(sizeof(HostPages)));
    EXPECT_TRUE(mailbox.ok());
    words = (*mailbox)->words();
    notes = (*mailbox)->notes();
    member = std::make_unique<GpuMember>(GpuMember::Parts{
        .gpu = gpu,
        .mailbox = std::move(*mailbox),
        .exchange = std::move(exchange),
        .launches = std::move(table),
        .why_no_codecs = why_no_codecs,
        .post = post,
        .member = {1, 1},
        .ranks = ranks,
        .trigger = trigger,
        .daemon = {
            .create_plan = [this](const NewPlan& wanted, Deadline) { return create_plan(wanted); },
            .destroy_plan = [this](PlanId id, Deadline) { return destroy_plan(id); },
            .replace_plan =
                [this](PlanId id, Deadline) {
                  ++replaced;
                  return destroy_plan(id);
                }}});
  }

  Trigger trigger = Trigger::Early;
  std::string why_no_codecs;  // of members to come
  Result<PlanId> create_plan(const NewPlan& wanted) {
    asked.push_back(wanted);
    if (!refusals.empty()) {
      Error why = refusals.front();
      refusals.pop_front();
      return why;
    }
    return PlanId{static_cast<std::uint32_t>(asked.size()), 1};
  }

  Status destroy_plan(PlanId id) {
    destroyed.push_back(id);
    return std::exchange(destroy_answer, Status());
  }

  CollectiveCall call(std::uint64_t count) {
    return {all_reduce_of(count), reinterpret_cast<const std::byte*>(send.range.base + 256),
            reinterpret_cast<std::byte*>(recv.range.base)};
  }
  Status all_reduce(std::uint64_t count, void* stream = nullptr) {
    return member->all_reduce(call(count), send, recv, 1000, stream, deadline());
  }
  static Deadline deadline() { return Deadline::after(std::chrono::seconds(1)); }

  const std::shared_ptr<FakeGpu> gpu = std::make_shared<FakeGpu>();
  // Each test's own: the process remembers what its operations may still touch.
  static inline std::uintptr_t next_base = 0x7f0000000000;
  const GpuBuffer send{.range = {.base = next_base += 1ULL << 32, .bytes = 1 << 30}, .id = {1, 1}};
  const GpuBuffer recv{.range = {.base = next_base += 1ULL << 32, .bytes = 1 << 30}, .id = {2, 1}};
  std::vector<NewPlan> asked;
  std::vector<PlanId> destroyed;
  int replaced = 0;  // of them
  std::deque<Error> refusals;
  Status destroy_answer;  // to the next one
  DeviceMailbox* words = nullptr;
  PostNotes* notes = nullptr;
  std::unique_ptr<GpuMember> member;
};

}  // namespace arcomm::client

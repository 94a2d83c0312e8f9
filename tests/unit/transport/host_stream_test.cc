// What the host's streams promise beyond the conformance suite: what they cost.
#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/thread_cpu_clock.h"
#include "transport/device/host/host_device.h"

namespace arcomm {
namespace {

using namespace std::chrono_literals;

TEST(HostStream, IdleStreamsUseNoProcessor) {
  auto device = HostDevice::create({});
  ASSERT_TRUE(device.ok());
  std::vector<Stream> streams;
  std::vector<support::ThreadCpuClock> clocks;
  for (int i = 0; i < 8; ++i) {
    auto stream = (*device)->create_stream("idle");
    ASSERT_TRUE(stream.ok());
    pthread_t thread{};
    ASSERT_EQ(stream->enqueue(
                  {[](void* its) { *static_cast<pthread_t*>(its) = ::pthread_self(); }, &thread}),
              Enqueue::Done);
    ASSERT_TRUE(stream->synchronize(10s).ok());
    streams.push_back(*std::move(stream));
    clocks.emplace_back(thread);
  }
  const auto used = [&clocks] {
    std::chrono::nanoseconds all{};
    for (const support::ThreadCpuClock& clock : clocks) all += clock.now();
    return all;
  };
  std::this_thread::sleep_for(50ms);  // they have given up spinning
  const auto before = used();
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(used() - before, 5ms) << "1% of a core for eight streams";
}

TEST(HostStream, HasItsNameInTheDebugger) {
  auto device = HostDevice::create({});
  ASSERT_TRUE(device.ok());
  auto stream = (*device)->create_stream("a-name-that-is-far-too-long");
  ASSERT_TRUE(stream.ok());
  char name[32] = {};
  ASSERT_EQ(stream->enqueue({[](void* context) {
                               ::pthread_getname_np(::pthread_self(), static_cast<char*>(context),
                                                    32);
                             },
                             name}),
            Enqueue::Done);
  ASSERT_TRUE(stream->synchronize(10s).ok());
  EXPECT_STREQ(name, "a-name-that-is-");
}

TEST(HostDevice, RefusesSlotsThatAreNoPowerOfTwo) {
  for (const std::uint32_t slots : {0U, 3U, 100U, 1U << 20}) {
    const auto device = HostDevice::create({.stream_slots = slots});
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.error().code, ErrorCode::InvalidArgument);
  }
}

}  // namespace
}  // namespace arcomm

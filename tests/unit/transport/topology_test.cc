#include "transport/topology/topology.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace arcomm {
namespace {

namespace fs = std::filesystem;

// A machine made of files.
class FakeMachine : public testing::Test {
 protected:
  FakeMachine() {
    std::string pattern = (fs::temp_directory_path() / "arcomm-topology-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~FakeMachine() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const fs::path file = root_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }
  Topology discover() { return discover_host(root_.string()); }

  fs::path root_;
};

TEST(Topology, DescribesThisMachineConsistently) {
  const Topology topology = discover_host();
  ASSERT_FALSE(topology.cores.empty());
  EXPECT_TRUE(std::ranges::is_sorted(topology.cores));
  EXPECT_GE(topology.parallelism(), 1U);
  EXPECT_LE(topology.parallelism(), topology.cores.size());
  std::size_t placed = 0;
  for (const NumaNode& node : topology.nodes) placed += node.cores.size();
  EXPECT_EQ(placed, topology.cores.size());
  EXPECT_GT(topology.memory_bytes, 0U);
}

TEST_F(FakeMachine, WithoutAnyFilesIsConservative) {
  const Topology topology = discover();
  EXPECT_EQ(topology.cpu_quota, 0);
  EXPECT_EQ(topology.nodes.size(), 1U);
  EXPECT_EQ(topology.llc_bytes, 0U);
  EXPECT_EQ(topology.line_bytes, 64U);
  EXPECT_EQ(topology.cpu_model, "unknown");
}

TEST_F(FakeMachine, TakesTheTightestQuotaOfItsControlGroups) {
  write("proc/self/cgroup", "0::/system.slice/arcommd.service");
  write("sys/fs/cgroup/system.slice/arcommd.service/cpu.max", "150000 100000");
  write("sys/fs/cgroup/system.slice/cpu.max", "50000 100000");
  EXPECT_DOUBLE_EQ(discover().cpu_quota, 0.5);
  EXPECT_EQ(discover().parallelism(), 1U);
}

TEST_F(FakeMachine, ReadsTheFirstVersionOfControlGroups) {
  write("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/1\n");
  write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "200000");
  write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us", "100000");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_DOUBLE_EQ(discover().cpu_quota, 2.0);
}

TEST_F(FakeMachine, AnUnlimitedOrMalformedQuotaIsNone) {
  write("proc/self/cgroup", "0::/a");
  for (const char* text : {"max 100000", "", "100000", "1 0", "x y"}) {
    write("sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(discover().cpu_quota, 0) << text;
  }
}

TEST_F(FakeMachine, ReadsCacheSizes) {
  const std::string core = std::to_string(discover_host().cores.front());
  const std::string folder = "sys/devices/system/cpu/cpu" + core + "/cache/index";
  const auto cache = [&](int index, const char* level, const char* type, const char* size) {
    write(folder + std::to_string(index) + "/level", level);
    write(folder + std::to_string(index) + "/type", type);
    write(folder + std::to_string(index) + "/size", size);
    write(folder + std::to_string(index) + "/coherency_line_size", "128");
  };
  cache(0, "1", "Data", "48K");
  cache(1, "1", "Instruction", "32K");
  cache(2, "2", "Unified", "2048K");
  cache(3, "3", "Unified", "36M");
  const Topology topology = discover();
  EXPECT_EQ(topology.l1d_bytes, 48U << 10);
  EXPECT_EQ(topology.l2_bytes, 2U << 20);
  EXPECT_EQ(topology.llc_bytes, 36U << 20);
  EXPECT_EQ(topology.line_bytes, 128U);
}

TEST_F(FakeMachine, MalformedNodesFallBackToOne) {
  write("sys/devices/system/node/online", "0-1,junk");
  write("sys/devices/system/node/node0/cpulist", "9-2");
  write("sys/devices/system/node/node1/cpulist", "99999999999999999999");
  const Topology topology = discover();
  ASSERT_EQ(topology.nodes.size(), 1U);
  EXPECT_EQ(topology.nodes[0].cores, topology.cores);
}

TEST(CoreList, TakesWhatTheKernelAndPeopleWrite) {
  EXPECT_EQ(core_list("4-7,12"), (std::vector<int>{4, 5, 6, 7, 12}));
  EXPECT_EQ(core_list("3, 1"), (std::vector<int>{3, 1})) << "in the order that was written";
  EXPECT_TRUE(core_list("").empty());
  EXPECT_EQ(core_list("2,x,4"), std::vector<int>{2});
}

}  // namespace
}  // namespace arcomm

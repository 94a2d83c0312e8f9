// One person with many uids, and memory that is not there: what the node has for all users
// together. Fault matrix 43 and 44. To the daemon a process of a user namespace has the uid that
// its own is mapped to, which is what these clients have.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/node_test.h"
#include "tests/support/processes/control_group.h"

namespace arcomm::support {
namespace {

constexpr uid_t kMapped = 196'608;  // the first of a user namespace's 65,536
constexpr std::uint64_t kMiB = 1 << 20;
constexpr milliseconds kNewcomer{5000};
constexpr const char* kNoGroup = "needs the right to make memory control groups here";

class NodeLimits : public NodeTest {
 protected:
  // Attaches, communicates and reduces in memory of the daemon's, all of it in the time.
  void expect_newcomer_is_served(uid_t uid) {
    const auto started = std::chrono::steady_clock::now();
    const auto newcomer = client_of(uid);
    newcomer->expect_ok("init 5000");
    newcomer->expect_ok("comm c0 1 " + newcomer->expect_ok("id") + " 0");
    newcomer->expect_ok("allreduce c0 1000 float32 sum mem=alloc");
    EXPECT_LT(std::chrono::steady_clock::now() - started, kNewcomer);
    newcomer->expect_ok("finalize");
  }
  // The reply that refused the next `line`, to which a number is added.
  Reply repeat_until_refused(ClientProcess& client, const std::string& line,
                             const std::string& rest, int most) {
    for (int i = 0; i < most; ++i) {
      Reply reply = client.ask(line + std::to_string(i) + rest);
      if (!reply.ok()) return reply;
    }
    ADD_FAILURE() << "nobody refused the " << most << "th " << line;
    return {};
  }
  // Gone after the daemon is.
  ControlGroup& service_group(std::uint64_t bytes) { return service_.emplace("service", bytes); }
  void expect_told(const Reply& refused, arcReason_t reason, const std::string& setting) {
    EXPECT_EQ(refused.code, arcResourceExhausted) << refused.to_string();
    EXPECT_EQ(refused.reason, reason) << refused.to_string();
    EXPECT_NE(refused.message.find(setting), std::string::npos) << refused.message;
    EXPECT_NE(refused.message.find("and its range have"), std::string::npos) << refused.message;
    EXPECT_LT(refused.took, kPrompt);
  }

 private:
  std::optional<ControlGroup> service_;
};

TEST_F(NodeLimits, OfOnePersonsManyUidsLeaveRoomForAnotherUser) {  // 43
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become other users";
  DaemonProcess::Options options;
  options.settings["access.group"] = "nogroup";
  options.settings["quota.sessions"] = "2";
  options.settings["quota.node_sessions"] = "24";
  options.settings["quota.node_mappings"] = "200";
  options.settings["quota.node_host_bytes"] = "64MiB";
  start(options);
  expect_newcomer_is_served(kNobody);
  const std::uint64_t resident = node().child().resident_bytes();
  const std::size_t descriptors = node().child().open_descriptors();

  // Each uid is below its own quota; together they run into the node's.
  Clients mapped;
  Reply refused;
  for (uid_t i = 0; i < 24 && (i == 0 || refused.ok()); ++i) {
    mapped.push_back(client_of(kMapped + 7 * i));
    refused = mapped.back()->ask("init 20000");
  }
  expect_told(refused, arcReasonQuota, "quota.node_sessions");
  expect_refusal_told("Attach", mapped.back()->pid(), "ResourceExhausted");
  EXPECT_EQ(mapped.size(), 13u) << "half of the node's sessions, and the one that was refused";
  expect_newcomer_is_served(kNobody);

  const Reply no_mapping = repeat_until_refused(*mapped[0], "alloc m", " 4096", 200);
  expect_told(no_mapping, arcReasonQuota, "quota.node_mappings");
  expect_newcomer_is_served(kNobody);
  const Reply no_memory = repeat_until_refused(*mapped[1], "alloc b", " 4194304", 16);
  // Whichever it meets first: its range has its share of mappings, too.
  EXPECT_EQ(no_memory.code, arcResourceExhausted) << no_memory.to_string();
  expect_newcomer_is_served(kNobody);
  for (int i = 0; i < 20; ++i) mapped[0]->expect_ok("free m" + std::to_string(i));
  expect_told(repeat_until_refused(*mapped[2], "alloc b", " 4194304", 16), arcReasonOutOfMemory,
              "quota.node_host_bytes");
  expect_newcomer_is_served(kNobody);

  const nlohmann::json sessions = limit_of("sessions");
  EXPECT_EQ(sessions["used"], 12);
  EXPECT_EQ(sessions["of_node"], 24);
  EXPECT_EQ(sessions["of_uid"], 2);
  EXPECT_EQ(sessions["users"], 1) << "one range of uids is one user";
  EXPECT_EQ(limit_of("host_bytes")["most_uid"], kMapped + 7 * 2);
  EXPECT_LE(used("host_bytes"), 48.0 * kMiB);
  EXPECT_EQ(scrape().value("arcomm_node_limit", {"host_bytes"}), 64.0 * kMiB);

  // They die, and everything is as before.
  for (const auto& client : mapped) client->child().kill();
  EXPECT_TRUE(eventually(
      kPrompt,
      [&] { return used("sessions") == 0 && used("mappings") == 0 && used("host_bytes") == 0; }))
      << used("sessions") << " sessions, " << used("mappings") << " mappings, "
      << used("host_bytes") << " bytes";
  EXPECT_TRUE(
      eventually(kPrompt, [&] { return node().child().open_descriptors() <= descriptors + 2; }));
  EXPECT_LT(node().child().resident_bytes(), resident + 16 * kMiB + kQuarantineBytes);
  expect_newcomer_is_served(kMapped + 1);
}

UniqueFd sparse_memory(std::uint64_t bytes) {
  UniqueFd fd(::memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  return fd;
}

void expect_no_memory(const Result<RawSession::Buffer>& refused) {
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::ResourceExhausted) << refused.error().to_string();
  EXPECT_EQ(refused.error().reason, Reason::OutOfMemory) << refused.error().to_string();
}

// Has the daemon touch every page of both, in operations that are not too long.
void reduce_into(RawSession& session, MemberId member, std::uint64_t& seq,
                 const RawSession::Buffer& from, const RawSession::Buffer& to) {
  constexpr std::uint64_t kPart = 10 * kMiB;
  for (std::uint64_t offset = 0; offset < from.bytes; offset += kPart, ++seq) {
    ring::WorkRequest request = valid_request(member, seq, from.id, kPart / sizeof(float));
    request.recv_buffer = to.id.bits();
    request.send_offset_bytes = request.recv_offset_bytes = offset;
    request.timeout_ns = 20'000'000'000;
    ASSERT_EQ(session.submit(request), ring::Push::Done);
    const std::optional<ring::Completion> done = session.next_completion(milliseconds(20000));
    ASSERT_TRUE(done.has_value());
    ASSERT_EQ(done->code, 0) << done->detail;
  }
}

TEST_F(NodeLimits, OfMemoryCountWhatIsRegisteredWhetherItsPagesAreThere) {  // 44
  DaemonProcess::Options options;
  options.settings["quota.node_host_bytes"] = "100MiB";
  start(options);
  Result<std::unique_ptr<RawSession>> session = RawSession::attach(node());
  ASSERT_TRUE(session.ok());
  const UniqueFd first = sparse_memory(60 * kMiB), second = sparse_memory(60 * kMiB);
  const Result<RawSession::Buffer> kept = (*session)->register_memory(first.get(), 0, 60 * kMiB);
  ASSERT_TRUE(kept.ok()) << kept.error().to_string();
  const Result<RawSession::Buffer> refused =
      (*session)->register_memory(second.get(), 0, 60 * kMiB);
  expect_no_memory(refused);
  EXPECT_NE(refused.error().message.find("quota.node_host_bytes"), std::string::npos)
      << refused.error().message;
  expect_refusal_told("RegisterBuffer", ::getpid(), "ResourceExhausted");
  EXPECT_EQ(limit_of("host_bytes")["used"], 60 * kMiB);
  EXPECT_EQ(limit_of("unfilled_bytes")["used"], 60 * kMiB);
  // Released, it is the next one's; a session's end releases all.
  ASSERT_TRUE((*session)->release(kept->id).ok());
  ASSERT_TRUE((*session)->register_memory(second.get(), 0, 60 * kMiB).ok());
  session->reset();
  EXPECT_TRUE(eventually(kPrompt, [&] { return used("host_bytes") == 0; }));
}

#ifndef ARCOMM_SANITIZED  // whose shadow is memory, too
TEST_F(NodeLimits, OfMemoryAreThoseOfTheServicesControlGroupAndNobodyIsKilled) {  // 44
  ControlGroup& group = service_group(512 * kMiB);
  if (!group.enter()) GTEST_SKIP() << kNoGroup;
  start();
  group.leave();
  EXPECT_EQ(limit_of("host_bytes")["of_node"], 448 * kMiB);
  Result<std::unique_ptr<RawSession>> session = RawSession::attach(node());
  ASSERT_TRUE(session.ok());
  const Result<MemberId> member = (*session)->create_lone_communicator();
  ASSERT_TRUE(member.ok());
  std::vector<UniqueFd> memory;
  std::vector<RawSession::Buffer> buffers;
  // Each is smaller than what the service has left; together they are five times as much.
  Result<RawSession::Buffer> refused = error(ErrorCode::Unknown, Reason::None, "not asked");
  for (int i = 0; i < 25; ++i) {
    memory.push_back(sparse_memory(100 * kMiB));
    Result<RawSession::Buffer> one =
        (*session)->register_memory(memory.back().get(), 0, 100 * kMiB);
    if (one.ok()) {
      buffers.push_back(*one);
    } else {
      refused = one;
    }
  }
  expect_no_memory(refused);
  ASSERT_GE(buffers.size(), 2u);
  ASSERT_LE(buffers.size(), 3u);
  // All that was accepted is touched, again after its pages were punched out, and is there.
  std::uint64_t seq = 0;
  for (int turn = 0; turn < 2; ++turn) {
    for (std::size_t i = 0; i < buffers.size(); ++i)
      reduce_into(**session, *member, seq, buffers[i], buffers[(i + 1) % buffers.size()]);
    EXPECT_GT(group.used_bytes(), buffers.size() * 100 * kMiB) << "the pages are not the daemon's";
    for (const UniqueFd& fd : memory) {
      ASSERT_EQ(::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                            static_cast<off_t>(100 * kMiB)),
                0);
    }
  }
  EXPECT_EQ(group.kills(), 0);
  EXPECT_TRUE(node().running());
  session->reset();
  memory.clear();
  EXPECT_TRUE(eventually(kPrompt, [&] { return used("host_bytes") == 0; }));
}

// Whoever touches a page first is charged for it, and that is the daemon, of memory that is not
// filled or was punched out again: what the daemon holds for a client's control group is bounded by
// what the group may have itself.
TEST_F(NodeLimits, OfMemoryAreForAClientThoseOfItsOwnControlGroup) {  // 44
  ControlGroup& service = service_group(2048 * kMiB);
  ControlGroup small("client", 256 * kMiB);
  ControlGroup divided(small, "part", ControlGroup::kNoLimit);
  if (!service.enter() || !small.made() || !divided.made()) GTEST_SKIP() << kNoGroup;
  start();
  service.leave();
  ASSERT_TRUE(divided.enter());
  const auto child = ClientProcess::start(node());
  ASSERT_TRUE(small.enter());
  const std::uint64_t service_before = service.used_bytes(), small_before = small.used_bytes();
  Result<std::unique_ptr<RawSession>> session = RawSession::attach(node());
  ASSERT_TRUE(session.ok());
  const Result<MemberId> member = (*session)->create_lone_communicator();
  ASSERT_TRUE(member.ok());
  std::vector<UniqueFd> memory;
  std::vector<RawSession::Buffer> buffers;
  for (int i = 0; i < 2; ++i) {
    memory.push_back(sparse_memory(100 * kMiB));
    Result<RawSession::Buffer> one =
        (*session)->register_memory(memory.back().get(), 0, 100 * kMiB);
    ASSERT_TRUE(one.ok()) << one.error().to_string();
    buffers.push_back(*one);
  }
  memory.push_back(sparse_memory(100 * kMiB));
  const Result<RawSession::Buffer> refused =
      (*session)->register_memory(memory.back().get(), 0, 100 * kMiB);
  expect_no_memory(refused);
  EXPECT_NE(refused.error().message.find(small.folder()), std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find("268435456"), std::string::npos)
      << refused.error().message;
  expect_refusal_told("RegisterBuffer", ::getpid(), "ResourceExhausted");
  expect_no_memory((*session)->allocate(100 * kMiB));
  // Neither has a part of the group more, nor has anybody else less.
  child->expect_ok("init 5000");
  const Reply no_part = child->ask("alloc m 104857600");
  EXPECT_EQ(no_part.reason, arcReasonOutOfMemory) << no_part.to_string();
  EXPECT_NE(no_part.message.find(small.folder()), std::string::npos) << no_part.message;
  small.leave();
  const auto outside = ClientProcess::start(node());
  outside->expect_ok("init 5000");
  outside->expect_ok("alloc m 314572800");
  outside->expect_ok("free m");
  EXPECT_TRUE(eventually(kPrompt, [&] { return limit_of("host_bytes")["used"] == 200 * kMiB; }));
  ASSERT_TRUE(small.enter());

  // Nor is there more in the memory in which calls meet: what does not fit is the worker's.
  const Result<RawSession::Buffer> nearly_all =
      (*session)->register_memory(memory.back().get(), 0, 56 * kMiB - (256 << 10));
  ASSERT_TRUE(nearly_all.ok()) << nearly_all.error().to_string();
  ASSERT_TRUE(divided.enter());
  const Clients ranks = start_ranks(node(), 2);
  ASSERT_TRUE(small.enter());
  for (int i = 1; i < 6; ++i) form_communicator(ranks, "c" + std::to_string(i));
  int meet_in_call = 0, told = 0;
  const nlohmann::json shown = arctl_json(node(), {"comms"});
  for (const nlohmann::json& one : shown["communicators"]) {
    if (one["ranks"] != 2) continue;
    const std::string why_not = one["why_not_in_call"];
    meet_in_call += why_not.empty() ? 1 : 0;
    told += why_not.find(small.folder()) != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(meet_in_call, 1);
  EXPECT_LE(meet_in_call, 3) << "each has 72 KiB of the 256 KiB that are left";
  EXPECT_EQ(meet_in_call + told, 6);
  ASSERT_TRUE((*session)->release(nearly_all->id).ok());
  for (int i = 0; i < 6; ++i)
    expect_all_ok(ranks, "allreduce c" + std::to_string(i) + " 10 float32 sum");
  expect_all_ok(ranks, "finalize");

  std::uint64_t seq = 0, most = 0;
  for (int turn = 0; turn < 3; ++turn) {
    for (std::size_t i = 0; i < buffers.size(); ++i)
      reduce_into(**session, *member, seq, buffers[i], buffers[1 - i]);
    most = std::max(most, service.used_bytes() - service_before);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(::fallocate(memory[static_cast<std::size_t>(i)].get(),
                            FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                            static_cast<off_t>(100 * kMiB)),
                0);
    }
  }
  std::cout << "charged to the daemon for a client that may have 256 MiB: " << most / kMiB
            << " MiB, to the client itself: " << (small.used_bytes() - small_before) / kMiB
            << " MiB\n";
  EXPECT_GE(most, 150 * kMiB) << "the pages are not the daemon's";
  EXPECT_LE(most, 256 * kMiB);
  EXPECT_EQ(service.kills(), 0);
  EXPECT_EQ(small.kills(), 0);

  // Released, it is the group's again.
  ASSERT_TRUE((*session)->release(buffers[0].id).ok());
  EXPECT_TRUE((*session)->register_memory(memory.back().get(), 0, 100 * kMiB).ok());
  session->reset();
  small.leave();
  EXPECT_TRUE(eventually(kPrompt, [&] { return used("host_bytes") == 0; }));
  child->expect_ok("alloc m 104857600");
}

// The highest node with memory, on most machines the only one.
int last_memory_node() {
  std::string nodes;
  std::ifstream("/sys/devices/system/node/has_memory") >> nodes;
  const std::size_t last = nodes.find_last_of(",-");
  return std::atoi(nodes.c_str() + (last == std::string::npos ? 0 : last + 1));
}

std::uint64_t bytes_of_node(int number, const std::string& what) {
  std::ifstream info("/sys/devices/system/node/node" + std::to_string(number) + "/meminfo");
  std::string word;
  std::uint64_t kib = 0;
  while (info >> word) {
    if (word == what && info >> kib) return kib * 1024;
  }
  return 0;
}

bool bind_to(int node_number, void* memory, std::uint64_t bytes) {
  const unsigned long mask = 1ul << node_number;
  return ::syscall(SYS_mbind, memory, bytes, MPOL_BIND | MPOL_F_STATIC_NODES, &mask,
                   8 * sizeof(mask), 0) == 0;
}

// A policy on shared memory holds for whoever touches it, the daemon too (shared_memory.h): it
// chooses where pages come from, never how many or whose they are.
TEST_F(NodeLimits, OfMemoryHoldWhateverNodeAClientBindsItTo) {  // 44
  ControlGroup& group = service_group(512 * kMiB);
  if (!group.enter()) GTEST_SKIP() << kNoGroup;
  start();
  group.leave();
  Result<std::unique_ptr<RawSession>> session = RawSession::attach(node());
  ASSERT_TRUE(session.ok());
  const Result<MemberId> member = (*session)->create_lone_communicator();
  ASSERT_TRUE(member.ok());
  const int node_number = last_memory_node();
  constexpr std::uint64_t kBytes = 100 * kMiB;
  std::vector<UniqueFd> memory;
  std::vector<RawSession::Buffer> buffers;
  std::vector<void*> mapped;
  for (int i = 0; i < 2; ++i) {
    memory.push_back(sparse_memory(kBytes));
    mapped.push_back(
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.back().get(), 0));
    ASSERT_NE(mapped.back(), MAP_FAILED);
    if (!bind_to(node_number, mapped.back(), kBytes))
      GTEST_SKIP() << "mbind: " << std::strerror(errno);
    Result<RawSession::Buffer> one = (*session)->register_memory(memory.back().get(), 0, kBytes);
    ASSERT_TRUE(one.ok()) << one.error().to_string();
    buffers.push_back(*one);
  }
  std::uint64_t seq = 0;
  for (int turn = 0; turn < 2; ++turn) {
    static_cast<float*>(mapped[0])[12345] = 0.5f;
    reduce_into(**session, *member, seq, buffers[0], buffers[1]);
    EXPECT_EQ(static_cast<float*>(mapped[1])[12345], 0.5f);
    int where = -1;
    void* page = static_cast<char*>(mapped[1]) + 50 * kMiB;
    EXPECT_EQ(*static_cast<volatile char*>(page), 0);  // the daemon's page, in our table, too
    ASSERT_EQ(::syscall(SYS_move_pages, 0, 1ul, &page, nullptr, &where, 0), 0);
    EXPECT_EQ(where, node_number) << "the daemon's fault did not follow the client's policy";
    EXPECT_LE(group.used_bytes(), 512 * kMiB);
    for (const UniqueFd& fd : memory) {
      ASSERT_EQ(::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                            static_cast<off_t>(kBytes)),
                0);
    }
  }
  EXPECT_EQ(group.kills(), 0);
  EXPECT_EQ(limit_of("host_bytes")["used"], 2 * kBytes);
  session->reset();
  for (void* one : mapped) ::munmap(one, kBytes);
  memory.clear();
  EXPECT_TRUE(eventually(kPrompt, [&] { return used("host_bytes") == 0; }));
}

// The kernel has to find pages there, and kills for them: first whoever filled the node, and not
// the daemon that was made to touch it, as long as the unit's OOMScoreAdjust= stands before it.
// (Without it the daemon was seen to be the next one.) Only where a node is small and not the only
// one.
TEST_F(NodeLimits, OfMemoryKeepTheDaemonAliveWhenAClientBindsItToANodeThatIsFull) {  // 44
  const int node_number = last_memory_node();
  if (node_number == 0 || bytes_of_node(node_number, "MemTotal:") > 1024 * kMiB)
    GTEST_SKIP() << "needs a second node with memory, of 1 GiB at most, as a machine can emulate";
  ControlGroup& group = service_group(512 * kMiB);
  if (!group.enter()) GTEST_SKIP() << kNoGroup;
  start();
  group.leave();
  std::ofstream("/proc/" + std::to_string(node().pid()) + "/oom_score_adj") << -500 << std::flush;
  Result<std::unique_ptr<RawSession>> session = RawSession::attach(node());
  ASSERT_TRUE(session.ok());
  const Result<MemberId> member = (*session)->create_lone_communicator();
  ASSERT_TRUE(member.ok());
  constexpr std::uint64_t kBytes = 50 * kMiB;
  const UniqueFd memory = sparse_memory(2 * kBytes);
  void* const mapped =
      ::mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  ASSERT_TRUE(bind_to(node_number, mapped, 2 * kBytes)) << std::strerror(errno);
  const Result<RawSession::Buffer> from = (*session)->register_memory(memory.get(), 0, kBytes);
  const Result<RawSession::Buffer> to = (*session)->register_memory(memory.get(), kBytes, kBytes);
  ASSERT_TRUE(from.ok() && to.ok());

  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd told(ends[0]);
  UniqueFd teller(ends[1]);
  const pid_t filler = ::fork();
  ASSERT_GE(filler, 0);
  if (filler == 0) {
    for (;;) {
      constexpr std::uint64_t kPart = 4 * kMiB;
      if (bytes_of_node(node_number, "MemFree:") < 24 * kMiB) break;
      void* const part =
          ::mmap(nullptr, kPart, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (part == MAP_FAILED || !bind_to(node_number, part, kPart)) ::_exit(1);
      std::memset(part, 1, kPart);
    }
    (void)!::write(teller.get(), "x", 1);
    for (;;) ::pause();
  }
  teller.reset();
  char byte = 0;
  ASSERT_EQ(::read(told.get(), &byte, 1), 1) << "nobody could fill the node";
  std::cout << "free on node " << node_number << ": "
            << bytes_of_node(node_number, "MemFree:") / kMiB << " MiB\n";
  std::uint64_t seq = 0;
  reduce_into(**session, *member, seq, *from, *to);
  int ended = 0;
  const bool is_killed = ::waitpid(filler, &ended, WNOHANG) == filler;
  std::cout << "whoever filled it was " << (is_killed ? "killed" : "left alive") << "\n";
  if (!is_killed) {
    ::kill(filler, SIGKILL);
    ::waitpid(filler, &ended, 0);
  }
  EXPECT_EQ(group.kills(), 0);
  EXPECT_TRUE(node().running());
  ::munmap(mapped, 2 * kBytes);
  expect_clean_all_reduce(node());
  session->reset();
}
#endif

}  // namespace
}  // namespace arcomm::support

// One person with many uids, and memory that is not there: what the node has for all users
// together. Fault matrix 43 and 44. To the daemon a process of a user namespace has the uid that
// its own is mapped to, which is what these clients have.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

constexpr uid_t kNobody = 65534;
constexpr gid_t kNogroup = 65534;
constexpr uid_t kMapped = 196'608;  // the first of a user namespace's 65,536
constexpr std::uint64_t kMiB = 1 << 20;
constexpr milliseconds kNewcomer{5000};

class NodeLimits : public NodeTest {
 protected:
  std::unique_ptr<ClientProcess> client_of(uid_t uid) {
    ClientProcess::Options options;
    options.environment = node().environment();
    options.uid = uid;
    options.gid = kNogroup;
    return ClientProcess::start(options);
  }
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
  void expect_told(const Reply& refused, arcReason_t reason, const std::string& setting) {
    EXPECT_EQ(refused.code, arcResourceExhausted) << refused.to_string();
    EXPECT_EQ(refused.reason, reason) << refused.to_string();
    EXPECT_NE(refused.message.find(setting), std::string::npos) << refused.message;
    EXPECT_NE(refused.message.find("and its range have"), std::string::npos) << refused.message;
    EXPECT_LT(refused.took, kPrompt);
  }
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

// A memory control group of its own for what this process starts meanwhile.
class MemoryGroup {
 public:
  explicit MemoryGroup(std::uint64_t bytes) {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      const std::size_t version_1 = line.find(":memory:");
      if (version_1 != std::string::npos) {
        home_ = "/sys/fs/cgroup/memory" + line.substr(version_1 + sizeof(":memory:") - 1);
        limit_ = "memory.limit_in_bytes";
        kills_ = "memory.oom_control";
        used_ = "memory.usage_in_bytes";
      } else if (line.starts_with("0::") && home_.empty()) {
        home_ = "/sys/fs/cgroup" + line.substr(3);
        limit_ = "memory.max";
        kills_ = "memory.events";
        used_ = "memory.current";
      }
    }
    folder_ = home_ + "/arcomm-test-" + std::to_string(::getpid());
    made_ = ::mkdir(folder_.c_str(), 0755) == 0 && write(folder_ + "/" + limit_, bytes) &&
            write(folder_ + "/cgroup.procs", static_cast<std::uint64_t>(::getpid()));
    if (made_) inside_ = true;
  }
  ~MemoryGroup() {
    leave();
    ::rmdir(folder_.c_str());
  }
  bool made() const { return made_; }
  void leave() {
    if (inside_) write(home_ + "/cgroup.procs", static_cast<std::uint64_t>(::getpid()));
    inside_ = false;
  }
  std::uint64_t used() const {
    std::ifstream file(folder_ + "/" + used_);
    std::uint64_t bytes = 0;
    file >> bytes;
    return bytes;
  }
  // Processes that the kernel killed in it.
  long kills() const {
    std::ifstream file(folder_ + "/" + kills_);
    for (std::string word; file >> word;) {
      long count = 0;
      if (word == "oom_kill" && file >> count) return count;
    }
    return -1;
  }

 private:
  static bool write(const std::string& path, std::uint64_t value) {
    std::ofstream file(path);
    file << value << std::endl;
    return file.good();
  }
  std::string home_, folder_, limit_, kills_, used_;
  bool made_ = false, inside_ = false;
};

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose shadow is memory, too
TEST_F(NodeLimits, OfMemoryAreThoseOfTheServicesControlGroupAndNobodyIsKilled) {  // 44
  MemoryGroup group(512 * kMiB);
  if (!group.made()) GTEST_SKIP() << "needs the right to make a memory control group";
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
    EXPECT_GT(group.used(), buffers.size() * 100 * kMiB) << "the pages are not the daemon's";
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
#endif

}  // namespace
}  // namespace arcomm::support

// Verbs that make and unmake: sessions, communicators, memory, and a forked child.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "tests/support/client/test_client.h"

namespace arcomm::support {
namespace {

bool parse_id(const std::string& hex, arcUniqueId* id) {
  if (hex.size() != 2ull * ARC_UNIQUE_ID_BYTES) return false;
  for (std::size_t i = 0; i < ARC_UNIQUE_ID_BYTES; ++i) {
    id->internal[i] = static_cast<char>(std::strtoul(hex.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  return true;
}

std::string to_hex(const arcUniqueId& id) {
  std::string hex;
  for (const char byte : id.internal) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(byte)));
    hex += digits;
  }
  return hex;
}

}  // namespace

Outcome Client::init(const Words& words) {
  arcConfig_t config = ARC_CONFIG_INITIALIZER;
  if (words.size() > 1) config.timeout_ms = std::strtoull(words[1].c_str(), nullptr, 10);
  return {arcInit(&config), "-", ""};
}

Outcome Client::finalize() {
  comms_.clear();
  return {arcFinalize(), "-", ""};
}

Outcome Client::make_id() {
  arcUniqueId id{};
  const arcResult_t result = arcGetUniqueId(&id);
  return {result, to_hex(id), ""};
}

Outcome Client::join(const Words& words) {
  arcUniqueId id{};
  if (words.size() < 5 || !parse_id(words[3], &id)) return wrong("comm NAME RANKS ID RANK");
  const int ranks = std::atoi(words[2].c_str());
  const bool several = words[0] == "comms";
  const Options options = parse_options(words, 4);
  const arcAllReduceConfig_t all_reduce = config_of(options);
  arcCommConfig_t config = ARC_COMM_CONFIG_INITIALIZER;
  if (options.has_config) config.all_reduce = &all_reduce;
  std::vector<Communicator> joined;
  for (std::size_t i = 4; i < words.size(); ++i) {
    if (words[i].find('=') == std::string::npos)
      joined.push_back({nullptr, std::atoi(words[i].c_str()), ranks, options.has_config});
  }
  arcResult_t result = several ? arcGroupStart() : arcSuccess;
  for (Communicator& comm : joined) {
    if (result == arcSuccess)
      result = arcCommInitRankConfig(&comm.handle, ranks, id, comm.rank, &config);
  }
  if (several && result == arcSuccess) result = arcGroupEnd();
  for (std::size_t i = 0; result == arcSuccess && i < joined.size(); ++i) {
    comms_[several ? words[1] + std::to_string(i) : words[1]] = joined[i];
  }
  return {result, "-", ""};
}

Outcome Client::on_communicator(const Words& words) {
  if (words.size() < 2 || comms_.count(words[1]) == 0) return wrong(words[0] + " NAME");
  Communicator& comm = comms_[words[1]];
  if (words[0] == "rebuild") return {arcCommRebuild(comm.handle), "-", ""};
  if (words[0] == "epoch") {
    std::uint64_t epoch = 0;
    const arcResult_t result = arcCommGetEpoch(comm.handle, &epoch);
    return {result, std::to_string(epoch), ""};
  }
  if (words[0] == "state") {
    arcResult_t state = arcSuccess;
    const arcResult_t result = arcCommGetAsyncError(comm.handle, &state);
    return {result, std::to_string(state), ""};
  }
  const arcResult_t result =
      words[0] == "abort" ? arcCommAbort(comm.handle) : arcCommDestroy(comm.handle);
  comms_.erase(words[1]);
  return {result, "-", ""};
}

Outcome Client::memory(const Words& words) {
  if (words.size() < 2) return wrong(words[0] + " NAME");
  if (words[0] == "free" || words[0] == "deregister") {
    return {memories_.erase(words[1]) == 1 ? arcSuccess : arcNotFound, "-", ""};
  }
  auto held = std::make_unique<Memory>(
      words[0] == "alloc" ? "alloc" : "registered",
      words.size() > 2 ? std::strtoull(words[2].c_str(), nullptr, 10) : 4096);
  const arcResult_t result = held->result();
  if (result == arcSuccess) memories_[words[1]] = std::move(held);
  return {result, "-", ""};
}

Outcome Client::cycles(const Words& words) {
  if (words.size() < 3) return wrong("cycles KIND N");
  const std::size_t n = std::strtoull(words[2].c_str(), nullptr, 10);
  for (std::size_t i = 0; i < n; ++i) {
    arcResult_t result = arcSuccess;
    if (words[1] == "session") {
      arcConfig_t config = ARC_CONFIG_INITIALIZER;
      result = arcInit(&config);
      const arcResult_t ended = result == arcSuccess ? arcFinalize() : result;
      if (result == arcSuccess) result = ended;
    } else if (words[1] == "comm") {
      arcUniqueId id{};
      arcComm_t comm = nullptr;
      float value = 1;
      result = arcGetUniqueId(&id);
      if (result == arcSuccess) result = arcCommInitRank(&comm, 1, id, 0);
      if (result == arcSuccess)
        result = arcAllReduce(&value, &value, 1, arcFloat32, arcSum, comm, nullptr);
      if (result == arcSuccess) result = arcCommDestroy(comm);
    } else if (words[1] == "alloc") {
      void* memory = nullptr;
      result = arcMemAlloc(&memory, 65536);
      if (result == arcSuccess) std::memset(memory, 1, 65536);
      if (result == arcSuccess) result = arcMemFree(memory);
    } else if (words[1] == "register") {
      std::vector<char> memory(65536);
      result = arcMemRegister(memory.data(), memory.size());
      if (result == arcSuccess) result = arcMemDeregister(memory.data());
    } else {
      return wrong("cycles session|comm|alloc|register N");
    }
    if (result != arcSuccess) return {result, std::to_string(i), ""};
  }
  return {arcSuccess, std::to_string(n), ""};
}

// Communicators are kept by the library, which nobody tells to destroy them.
Outcome Client::hoard(const Words& words) {
  if (words.size() < 3) return wrong("hoard KIND N [BYTES]");
  const std::size_t n = std::strtoull(words[2].c_str(), nullptr, 10);
  const std::size_t bytes = words.size() > 3 ? std::strtoull(words[3].c_str(), nullptr, 10) : 4096;
  for (std::size_t i = 0; i < n; ++i) {
    arcResult_t result = arcSuccess;
    if (words[1] == "comm") {
      arcUniqueId id{};
      arcComm_t comm = nullptr;
      result = arcGetUniqueId(&id);
      if (result == arcSuccess) result = arcCommInitRank(&comm, 1, id, 0);
    } else {
      auto held = std::make_unique<Memory>(words[1], bytes);
      result = held->result();
      if (result == arcSuccess) hoarded_.push_back(std::move(held));
    }
    if (result != arcSuccess) return {result, std::to_string(i), ""};
  }
  return {arcSuccess, std::to_string(n), ""};
}

// What a forked child hears from the library: "code,reason" of its AllReduce and of its
// arcFinalize.
Outcome Client::in_child(const Words& words) {
  Operation operation;
  if (words.size() < 2 || !parse_operation({"", words[1], "16", "float32", "sum"}, 1, &operation))
    return wrong("fork COMM");
  if (operation.prepare() != arcSuccess) return wrong("no memory");
  operation.fill(0);
  int ends[2];
  if (::pipe(ends) != 0) return wrong("no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    const arcResult_t result = operation.run();
    arcErrorInfo_t info{};
    info.struct_size = sizeof(info);
    arcGetLastErrorInfo(&info);
    void* memory = nullptr;
    const arcResult_t allocated = arcMemAlloc(&memory, 4096);
    char text[700];
    const int length = std::snprintf(text, sizeof(text), "%d,%d,%d %s", result, info.reason,
                                     allocated, info.message);
    [[maybe_unused]] const ssize_t written =
        ::write(ends[1], text, static_cast<std::size_t>(length));
    ::_exit(0);
  }
  ::close(ends[1]);
  char text[701] = {};
  const ssize_t got = ::read(ends[0], text, sizeof(text) - 1);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (got <= 0 || !WIFEXITED(status)) return wrong("the child said nothing");
  std::istringstream in(std::string(text, static_cast<std::size_t>(got)));
  Outcome outcome;
  in >> outcome.value;
  std::getline(in >> std::ws, outcome.message);
  return outcome;
}

}  // namespace arcomm::support

// A client process that does what it is told: one verb per line on stdin, one reply per line on
// stdout:
//   code reason culprit-rank took-ms value message
// A program over libarclient's public interface only. NAME is the test's name for a thing;
// operation options are place=in|out  mem=heap|odd|alloc|registered|shared  recv=(the same)  salt=N
// n=N (repetitions).
//
//   init [timeout_ms]          finalize         id                  version
//   comm NAME RANKS ID RANK    comms NAME RANKS ID RANK...          (one group; named NAME0, NAME1,
//   ...) destroy|abort|rebuild|epoch|state NAME allreduce COMM COUNT DTYPE OP [options]     loop
//   COMM COUNT DTYPE OP n=N  (p50, p99, max in us) async NAME COMM COUNT DTYPE OP [options]    test
//   NAME    wait NAME [timeout_ms] group COUNT DTYPE OP COMM...                threads COUNT DTYPE
//   OP COMM... plan NAME COMM COUNT DTYPE OP [options]     planrun NAME N     plandestroy NAME
//   alloc NAME BYTES   free NAME   register NAME BYTES   deregister NAME
//   flood COMM COUNT n=N       drain            cycles KIND N       fork COMM
//   die COMM COUNT             exit CODE        _exit CODE          sleep MS
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "client/include/arclient.h"
#include "tests/support/pattern.h"

namespace arcomm::support {
namespace {

using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;

struct Outcome {
  arcResult_t code = arcSuccess;
  std::string value = "-";
  std::string message;  // empty: the library's own last error
};

Outcome wrong(std::string why) {
  return {arcInternal, "-", "test client: " + std::move(why)};
}

// Memory as an application may have it.
class Memory {
 public:
  Memory(const std::string& kind, std::size_t bytes)
      : kind_(kind), bytes_(std::max<std::size_t>(bytes, 1)) {
    if (kind == "alloc") {
      result_ = arcMemAlloc(&base_, bytes_);
    } else if (kind == "shared") {
      const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
      const bool sized = fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes_)) == 0 &&
                         ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0;
      base_ =
          sized ? ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
      if (fd >= 0) ::close(fd);
      if (base_ == MAP_FAILED) result_ = arcResourceExhausted;
      if (base_ != MAP_FAILED) result_ = arcMemRegister(base_, bytes_);
    } else {
      base_ = std::aligned_alloc(64, (bytes_ + 64 + 63) / 64 * 64);
      if (kind == "registered") result_ = arcMemRegister(base_, bytes_);
    }
  }
  ~Memory() {
    if (kind_ == "alloc") {
      if (result_ == arcSuccess) arcMemFree(base_);
      return;
    }
    if ((kind_ == "registered" || kind_ == "shared") && result_ == arcSuccess)
      arcMemDeregister(base_);
    if (kind_ == "shared") {
      if (base_ != MAP_FAILED) ::munmap(base_, bytes_);
    } else {
      std::free(base_);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // "odd": aligned to the element and to nothing more.
  void* data(std::size_t width) const {
    return kind_ == "odd" ? static_cast<char*>(base_) + width : base_;
  }
  arcResult_t result() const { return result_; }

 private:
  std::string kind_;
  std::size_t bytes_;
  void* base_ = nullptr;
  arcResult_t result_ = arcSuccess;
};

struct Communicator {
  arcComm_t handle = nullptr;
  int rank = 0, ranks = 0;
};

struct Options {
  std::string place = "out", mem = "heap", recv;
  std::uint64_t salt = 0;
  std::size_t n = 1;
};

Options parse_options(const Words& words, std::size_t from) {
  Options options;
  for (std::size_t i = from; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    const std::string key = words[i].substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : words[i].substr(equals + 1);
    if (key == "place") options.place = value;
    if (key == "mem") options.mem = value;
    if (key == "recv") options.recv = value;
    if (key == "salt") options.salt = std::strtoull(value.c_str(), nullptr, 10);
    if (key == "n") options.n = std::strtoull(value.c_str(), nullptr, 10);
  }
  if (options.recv.empty()) options.recv = options.mem;
  return options;
}

// One AllReduce with its memory: filled, submitted by the caller, checked.
struct Operation {
  Communicator comm;
  std::size_t count = 0;
  arcDataType_t dtype = arcFloat32;
  arcRedOp_t op = arcSum;
  Options options;
  std::unique_ptr<Memory> send_memory, recv_memory;
  arcTicket_t ticket = 0;
  arcPlan_t plan = nullptr;

  std::size_t width() const { return element_bytes(dtype); }
  void* send() const { return send_memory->data(width()); }
  void* recv() const { return recv_memory ? recv_memory->data(width()) : send(); }
  arcResult_t prepare() {
    send_memory = std::make_unique<Memory>(options.mem, count * width());
    if (options.place != "in")
      recv_memory = std::make_unique<Memory>(options.recv, count * width());
    return recv_memory && recv_memory->result() != arcSuccess ? recv_memory->result()
                                                              : send_memory->result();
  }
  void fill(std::uint64_t round) {
    fill_pattern(send(), count, dtype, op, comm.rank, options.salt + round);
  }
  std::string check(std::uint64_t round) const {
    return check_pattern(recv(), count, dtype, op, comm.ranks, options.salt + round);
  }
  Outcome judge(arcResult_t result, std::uint64_t round) const {
    if (result != arcSuccess) return {result, "-", ""};
    const std::string difference = check(round);
    if (!difference.empty()) return {arcDataLoss, "-", difference};
    const std::size_t bytes = count * width();
    return {arcSuccess, std::to_string(bytes <= (64u << 20) ? hash_bytes(recv(), bytes) : 0), ""};
  }
  arcResult_t run() const {
    return arcAllReduce(send(), recv(), count, dtype, op, comm.handle, nullptr);
  }
};

class Client {
 public:
  Outcome act(const Words& words);

 private:
  bool parse_operation(const Words& words, std::size_t at, Operation* operation) {
    if (words.size() < at + 4 || comms_.count(words[at]) == 0) return false;
    operation->comm = comms_[words[at]];
    operation->count = std::strtoull(words[at + 1].c_str(), nullptr, 10);
    operation->options = parse_options(words, at + 4);
    return parse_dtype(words[at + 2], &operation->dtype) && parse_op(words[at + 3], &operation->op);
  }
  Outcome init(const Words& words);
  Outcome join(const Words& words);
  Outcome all_reduce(const Words& words);
  Outcome loop(const Words& words);
  Outcome submit(const Words& words);
  Outcome wait(const Words& words);
  Outcome together(const Words& words);
  Outcome plan(const Words& words);
  Outcome on_communicator(const Words& words);
  Outcome memory(const Words& words);
  Outcome flood(const Words& words);
  Outcome drain();
  Outcome cycles(const Words& words);
  Outcome in_child(const Words& words);

  std::map<std::string, Communicator> comms_;
  std::map<std::string, Operation> operations_;
  std::map<std::string, std::unique_ptr<Memory>> memories_;
  std::vector<Operation> flooded_;
};

bool parse_id(const std::string& hex, arcUniqueId* id) {
  if (hex.size() != 2 * ARC_UNIQUE_ID_BYTES) return false;
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

Outcome Client::init(const Words& words) {
  arcConfig_t config = ARC_CONFIG_INITIALIZER;
  if (words.size() > 1) config.timeout_ms = std::strtoull(words[1].c_str(), nullptr, 10);
  return {arcInit(&config), "-", ""};
}

Outcome Client::join(const Words& words) {
  arcUniqueId id{};
  if (words.size() < 5 || !parse_id(words[3], &id)) return wrong("comm NAME RANKS ID RANK");
  const int ranks = std::atoi(words[2].c_str());
  const bool several = words[0] == "comms";
  std::vector<Communicator> joined;
  for (std::size_t i = 4; i < words.size(); ++i)
    joined.push_back({nullptr, std::atoi(words[i].c_str()), ranks});
  arcResult_t result = several ? arcGroupStart() : arcSuccess;
  for (Communicator& comm : joined) {
    if (result == arcSuccess) result = arcCommInitRank(&comm.handle, ranks, id, comm.rank);
  }
  if (several && result == arcSuccess) result = arcGroupEnd();
  for (std::size_t i = 0; result == arcSuccess && i < joined.size(); ++i) {
    comms_[several ? words[1] + std::to_string(i) : words[1]] = joined[i];
  }
  return {result, "-", ""};
}

Outcome Client::all_reduce(const Words& words) {
  Operation operation;
  if (!parse_operation(words, 1, &operation)) return wrong("allreduce COMM COUNT DTYPE OP");
  if (const arcResult_t prepared = operation.prepare(); prepared != arcSuccess)
    return {prepared, "-", ""};
  Outcome outcome;
  for (std::size_t round = 0; round < operation.options.n && outcome.code == arcSuccess; ++round) {
    operation.fill(round);
    outcome = operation.judge(operation.run(), round);
  }
  return outcome;
}

Outcome Client::loop(const Words& words) {
  Operation operation;
  if (!parse_operation(words, 1, &operation)) return wrong("loop COMM COUNT DTYPE OP n=N");
  if (const arcResult_t prepared = operation.prepare(); prepared != arcSuccess)
    return {prepared, "-", ""};
  std::vector<double> took;
  Outcome outcome;
  for (std::size_t round = 0; round < operation.options.n && outcome.code == arcSuccess; ++round) {
    operation.fill(round);
    const auto started = Clock::now();
    const arcResult_t result = operation.run();
    took.push_back(std::chrono::duration<double, std::micro>(Clock::now() - started).count());
    outcome = operation.judge(result, round);
  }
  std::sort(took.begin(), took.end());
  const auto at = [&](std::size_t percent) {
    return took.empty()
               ? 0
               : static_cast<long>(took[std::min(took.size() - 1, took.size() * percent / 100)]);
  };
  outcome.value = std::to_string(took.size()) + "," + std::to_string(at(50)) + "," +
                  std::to_string(at(99)) + "," + std::to_string(at(100));
  return outcome;
}

Outcome Client::submit(const Words& words) {
  Operation operation;
  if (words.size() < 3 || !parse_operation(words, 2, &operation))
    return wrong("async NAME COMM COUNT DTYPE OP");
  if (const arcResult_t prepared = operation.prepare(); prepared != arcSuccess)
    return {prepared, "-", ""};
  operation.fill(0);
  const arcResult_t result =
      arcAllReduceAsync(operation.send(), operation.recv(), operation.count, operation.dtype,
                        operation.op, operation.comm.handle, nullptr, &operation.ticket);
  operations_[words[1]] = std::move(operation);
  return {result, "-", ""};
}

Outcome Client::wait(const Words& words) {
  if (words.size() < 2 || operations_.count(words[1]) == 0) return wrong("wait NAME");
  Operation& operation = operations_[words[1]];
  const std::uint64_t timeout = words.size() > 2 ? std::strtoull(words[2].c_str(), nullptr, 10) : 0;
  const arcResult_t result =
      words[0] == "test" ? arcTest(operation.ticket) : arcWait(operation.ticket, timeout);
  return result == arcInProgress ? Outcome{arcInProgress, "-", ""} : operation.judge(result, 0);
}

// Several ranks of this process at once: by one group, or by a thread each.
Outcome Client::together(const Words& words) {
  std::vector<Operation> operations(words.size() < 5 ? 0 : words.size() - 4);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (!parse_operation({words[4 + i], words[1], words[2], words[3]}, 0, &operations[i]))
      return wrong("group");
    if (const arcResult_t prepared = operations[i].prepare(); prepared != arcSuccess)
      return {prepared, "-", ""};
    operations[i].fill(0);
  }
  if (operations.empty()) return wrong("group COUNT DTYPE OP COMM...");
  arcResult_t result = arcSuccess;
  std::string message;
  if (words[0] == "group") {
    result = arcGroupStart();
    for (const Operation& operation : operations) {
      if (result == arcSuccess) result = operation.run();
    }
    const arcResult_t ended = arcGroupEnd();
    if (result == arcSuccess) result = ended;
  } else {
    std::vector<arcResult_t> results(operations.size());
    std::vector<std::string> messages(operations.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      threads.emplace_back([&, i] {
        results[i] = operations[i].run();
        messages[i] = arcGetLastError(nullptr);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < results.size() && result == arcSuccess; ++i) {
      result = results[i];
      message = messages[i];
    }
  }
  Outcome outcome{result, "-", message};
  for (std::size_t i = 0; i < operations.size() && outcome.code == arcSuccess; ++i)
    outcome = operations[i].judge(result, 0);
  return outcome;
}

Outcome Client::plan(const Words& words) {
  if (words.size() < 2) return wrong("plan NAME");
  if (words[0] == "plan") {
    Operation operation;
    if (!parse_operation(words, 2, &operation)) return wrong("plan NAME COMM COUNT DTYPE OP");
    if (const arcResult_t prepared = operation.prepare(); prepared != arcSuccess)
      return {prepared, "-", ""};
    const arcResult_t result =
        arcPlanCreateAllReduce(&operation.plan, operation.send(), operation.recv(), operation.count,
                               operation.dtype, operation.op, operation.comm.handle);
    operations_[words[1]] = std::move(operation);
    return {result, "-", ""};
  }
  if (operations_.count(words[1]) == 0) return wrong("no such plan");
  Operation& operation = operations_[words[1]];
  if (words[0] == "plandestroy") {
    const arcResult_t result = arcPlanDestroy(operation.plan);
    operations_.erase(words[1]);
    return {result, "-", ""};
  }
  const std::size_t repetitions =
      words.size() > 2 ? std::strtoull(words[2].c_str(), nullptr, 10) : 1;
  Outcome outcome;
  for (std::size_t round = 0; round < repetitions && outcome.code == arcSuccess; ++round) {
    operation.fill(round);
    arcResult_t result = arcPlanStart(operation.plan, nullptr);
    if (result == arcSuccess) result = arcPlanWait(operation.plan, 0);
    outcome = operation.judge(result, round);
  }
  return outcome;
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

// Submits and never looks back, until a refusal.
Outcome Client::flood(const Words& words) {
  if (words.size() < 4 || comms_.count(words[1]) == 0) return wrong("flood COMM COUNT n=N");
  const Options options = parse_options(words, 3);
  std::size_t accepted = 0;
  for (; accepted < options.n; ++accepted) {
    Operation operation;
    if (!parse_operation({"", words[1], words[2], "float32", "sum"}, 1, &operation))
      return wrong("flood");
    if (operation.prepare() != arcSuccess) break;
    operation.fill(0);
    const arcResult_t result =
        arcAllReduceAsync(operation.send(), operation.recv(), operation.count, operation.dtype,
                          operation.op, operation.comm.handle, nullptr, &operation.ticket);
    if (result != arcSuccess) return {result, std::to_string(accepted), ""};
    flooded_.push_back(std::move(operation));
  }
  return {arcSuccess, std::to_string(accepted), ""};
}

Outcome Client::drain() {
  Outcome first;
  std::size_t fine = 0;
  for (Operation& operation : flooded_) {
    const Outcome outcome = operation.judge(arcWait(operation.ticket, 0), 0);
    if (outcome.code == arcSuccess) ++fine;
    if (outcome.code != arcSuccess && first.code == arcSuccess) first = outcome;
  }
  flooded_.clear();
  first.value = std::to_string(fine);
  return first;
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

Outcome Client::act(const Words& words) {
  const std::string& verb = words[0];
  const auto number = [&] { return words.size() > 1 ? std::atoi(words[1].c_str()) : 0; };
  if (verb == "init") return init(words);
  if (verb == "finalize") {
    comms_.clear();
    return {arcFinalize(), "-", ""};
  }
  if (verb == "id") {
    arcUniqueId id{};
    const arcResult_t result = arcGetUniqueId(&id);
    return {result, to_hex(id), ""};
  }
  if (verb == "comm" || verb == "comms") return join(words);
  if (verb == "allreduce") return all_reduce(words);
  if (verb == "loop") return loop(words);
  if (verb == "async") return submit(words);
  if (verb == "wait" || verb == "test") return wait(words);
  if (verb == "group" || verb == "threads") return together(words);
  if (verb == "plan" || verb == "planrun" || verb == "plandestroy") return plan(words);
  if (verb == "destroy" || verb == "abort" || verb == "rebuild" || verb == "epoch" ||
      verb == "state") {
    return on_communicator(words);
  }
  if (verb == "alloc" || verb == "free" || verb == "register" || verb == "deregister")
    return memory(words);
  if (verb == "flood") return flood(words);
  if (verb == "drain") return drain();
  if (verb == "cycles") return cycles(words);
  if (verb == "fork") return in_child(words);
  if (verb == "die") {
    Words async{"async", "dying"};
    async.insert(async.end(), words.begin() + 1, words.end());
    async.insert(async.end(), {"float32", "sum"});
    submit(async);
    ::raise(SIGKILL);
  }
  if (verb == "sleep") {
    std::this_thread::sleep_for(std::chrono::milliseconds(number()));
    return {};
  }
  if (verb == "exit") std::exit(number());
  if (verb == "_exit") ::_exit(number());
  return wrong("unknown verb " + verb);
}

}  // namespace

int serve() {
  Client client;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    Words words;
    for (std::string word; in >> word;) words.push_back(word);
    if (words.empty()) continue;
    const auto started = Clock::now();
    const Outcome outcome = client.act(words);
    const auto took =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started).count();
    arcErrorInfo_t info{};
    info.struct_size = sizeof(info);
    info.rank = -1;
    const bool failed = outcome.code != arcSuccess && outcome.code != arcInProgress;
    if (failed) arcGetLastErrorInfo(&info);
    std::string message = failed && outcome.message.empty() ? info.message : outcome.message;
    std::replace(message.begin(), message.end(), '\n', ' ');
    std::cout << outcome.code << ' ' << (failed ? info.reason : 0) << ' '
              << (failed ? info.rank : -1) << ' ' << took << ' ' << outcome.value << ' ' << message
              << std::endl;
  }
  return 0;
}

}  // namespace arcomm::support

int main() {
  return arcomm::support::serve();
}

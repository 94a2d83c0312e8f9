// What arcomm_test_client does its verbs with: memory as applications have it, and one AllReduce
// from filling to checking. Thread: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/include/arclient.h"
#include "tests/support/pattern.h"

namespace arcomm::support {

using Words = std::vector<std::string>;

struct Outcome {
  arcResult_t code = arcSuccess;
  std::string value = "-";
  std::string message{};  // empty: the library's own last error
};

inline Outcome wrong(std::string why) {
  return {arcInternal, "-", "test client: " + std::move(why)};
}

// Memory as an application may have it.
class Memory {
 public:
  Memory(const std::string& kind, std::size_t bytes);
  ~Memory();
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
  bool has_default = false;  // it was formed with codec=, snr= or error=
};

struct Options {
  std::string place = "out", mem = "heap", recv;
  int codec = arcCodecNone;
  double least_snr_db = 0, most_relative_error = 0;
  bool has_config = false;  // one of them is given, a codec of 0 included
  std::uint64_t salt = 0;
  std::size_t n = 1;
};

Options parse_options(const Words& words, std::size_t from);
// What they ask for by codec=, snr= and error=.
arcAllReduceConfig_t config_of(const Options& options);

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
    // What a codec makes of the pattern is for the test to know, which hears the hash.
    const bool is_exact =
        options.codec == arcCodecNone && (options.has_config || !comm.has_default);
    const std::string difference = is_exact ? check(round) : "";
    if (!difference.empty()) return {arcDataLoss, "-", difference};
    const std::size_t bytes = count * width();
    return {arcSuccess, std::to_string(bytes <= (64u << 20) ? hash_bytes(recv(), bytes) : 0), ""};
  }
  arcResult_t run() const {
    if (!options.has_config)
      return arcAllReduce(send(), recv(), count, dtype, op, comm.handle, nullptr);
    const arcAllReduceConfig_t config = config_of(options);
    return arcAllReduceWith(send(), recv(), count, dtype, op, &config, comm.handle, nullptr);
  }
  arcResult_t submit() {
    if (!options.has_config) {
      return arcAllReduceAsync(send(), recv(), count, dtype, op, comm.handle, nullptr, &ticket);
    }
    const arcAllReduceConfig_t config = config_of(options);
    return arcAllReduceAsyncWith(send(), recv(), count, dtype, op, &config, comm.handle, nullptr,
                                 &ticket);
  }
  arcResult_t make_plan() {
    if (!options.has_config)
      return arcPlanCreateAllReduce(&plan, send(), recv(), count, dtype, op, comm.handle);
    const arcAllReduceConfig_t config = config_of(options);
    return arcPlanCreateAllReduceWith(&plan, send(), recv(), count, dtype, op, &config,
                                      comm.handle);
  }
};

}  // namespace arcomm::support

// libarclient for C++17: owners over the C ABI, header-only. Nothing here adds behaviour; what a
// call does stands in arclient.h.
//
// clang-format off
//   arc::Session session;                     // attaches; detaches at the end
//   arc::Communicator comm(ranks, id, rank);
//   arc::Buffer<float> gradient(1 << 20);     // daemon memory: collectives do not copy
//   comm.all_reduce(gradient.data(), gradient.data(), gradient.size());
// clang-format on
//
// Errors: every failure is thrown as arc::Error. Destructors do not throw.
// Threads: as in arclient.h; one object is used by one thread at a time, Communicator by any.
#ifndef ARCLIENT_HPP_
#define ARCLIENT_HPP_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "arclient.h"

namespace arc {

class Error : public std::runtime_error {
 public:
  // Of this thread's last failing call.
  static Error last() {
    arcErrorInfo_t info{};
    info.struct_size = sizeof(info);
    arcGetLastErrorInfo(&info);
    return Error(info, arcGetLastError(nullptr));
  }

  arcResult_t code() const noexcept { return code_; }
  arcReason_t reason() const noexcept { return reason_; }
  int rank() const noexcept { return rank_; }  // who caused it, or -1
  std::uint64_t seq() const noexcept { return seq_; }

 private:
  Error(const arcErrorInfo_t& info, const char* text)
      : std::runtime_error(text),
        code_(info.code),
        reason_(info.reason),
        rank_(info.rank),
        seq_(info.seq) {}

  arcResult_t code_;
  arcReason_t reason_;
  int rank_;
  std::uint64_t seq_;
};

inline void check(arcResult_t result) {
  if (result != arcSuccess) throw Error::last();
}

// The element type of T. float16 and bfloat16 have no standard type: pass arcFloat16 or arcBfloat16
// yourself.
template <typename T>
constexpr arcDataType_t data_type() {
  if constexpr (std::is_same_v<T, float>) {
    return arcFloat32;
  } else if constexpr (std::is_same_v<T, double>) {
    return arcFloat64;
  } else {
    static_assert(std::is_integral_v<T> && !std::is_same_v<T, bool>,
                  "no arcDataType_t for this type");
    switch (sizeof(T)) {
      case 1:
        return std::is_signed_v<T> ? arcInt8 : arcUint8;
      case 4:
        return std::is_signed_v<T> ? arcInt32 : arcUint32;
      default:
        break;
    }
    static_assert(sizeof(T) != 2, "there are no 16-bit integer operations");
    return std::is_signed_v<T> ? arcInt64 : arcUint64;
  }
}

// Attached from construction to destruction.
class Session {
 public:
  Session() { check(arcInit(nullptr)); }
  explicit Session(const arcConfig_t& config) { check(arcInit(&config)); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { arcFinalize(); }
};

inline arcUniqueId unique_id() {
  arcUniqueId id;
  check(arcGetUniqueId(&id));
  return id;
}

// Memory that the daemon owns and this process shares; zeroed. In a session on GPUs it is a GPU's,
// and not for the host to touch.
template <typename T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>, "shared memory holds plain values");

 public:
  Buffer() = default;
  explicit Buffer(std::size_t count) : count_(count) {
    void* memory = nullptr;
    if (count > SIZE_MAX / sizeof(T)) throw std::length_error("arc::Buffer: count is too large");
    if (count > 0) check(arcMemAlloc(&memory, count * sizeof(T)));
    data_ = static_cast<T*>(memory);
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { arcMemFree(data_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + count_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + count_; }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

// Memory of the caller's own that the daemon knows: operations inside it need no further set-up.
// Goes after the operations and plans on it, and before the memory.
class Registration {
 public:
  Registration() = default;
  Registration(void* memory, std::size_t bytes) {
    check(arcMemRegister(memory, bytes));
    memory_ = memory;
  }
  Registration(Registration&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  Registration& operator=(Registration&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() {
    if (memory_ != nullptr) arcMemDeregister(memory_);
  }

 private:
  void* memory_ = nullptr;
};

// An operation in flight. A ticket that is not waited for is waited for at destruction, because its
// buffers are in use until then; that error is lost.
class Ticket {
 public:
  Ticket() = default;
  explicit Ticket(arcTicket_t ticket) : ticket_(ticket) {}
  Ticket(Ticket&& other) noexcept : ticket_(std::exchange(other.ticket_, 0)) {}
  Ticket& operator=(Ticket&& other) noexcept {
    std::swap(ticket_, other.ticket_);
    return *this;
  }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() {
    if (ticket_ != 0) arcWait(ticket_, 0);
  }

  // True once done; throws the operation's error.
  bool test() {
    const arcResult_t result = arcTest(ticket_);
    if (result == arcInProgress) return false;
    ticket_ = 0;
    check(result);
    return true;
  }
  // Until the operation's own deadline.
  void wait() { check(arcWait(std::exchange(ticket_, 0), 0)); }
  // False when `timeout` passed first: the ticket stays valid.
  bool wait_for(std::chrono::milliseconds timeout) {
    const auto ms = timeout.count() > 0 ? static_cast<std::uint64_t>(timeout.count()) : 1;
    const arcResult_t result = arcWait(ticket_, ms);
    if (result == arcDeadlineExceeded && Error::last().seq() == UINT64_MAX) return false;
    ticket_ = 0;
    check(result);
    return true;
  }

 private:
  arcTicket_t ticket_ = 0;
};

// What an AllReduce asks for: a codec, or an error class, of which arclient.h says what they
// change.
inline arcAllReduceConfig_t with_codec(arcCodec_t codec) {
  arcAllReduceConfig_t config = ARC_ALL_REDUCE_CONFIG_INITIALIZER;
  config.codec = codec;
  return config;
}
inline arcAllReduceConfig_t with_least_snr(double decibels) {
  arcAllReduceConfig_t config = ARC_ALL_REDUCE_CONFIG_INITIALIZER;
  config.least_snr_db = decibels;
  return config;
}
inline arcAllReduceConfig_t with_most_relative_error(double error) {
  arcAllReduceConfig_t config = ARC_ALL_REDUCE_CONFIG_INITIALIZER;
  config.most_relative_error = error;
  return config;
}

class Communicator {
 public:
  Communicator() = default;
  // Blocks until all ranks are there.
  Communicator(int ranks, const arcUniqueId& id, int rank) {
    check(arcCommInitRank(&comm_, ranks, id, rank));
  }
  // `all_reduce`: the default of its operations.
  Communicator(int ranks, const arcUniqueId& id, int rank, const arcAllReduceConfig_t& all_reduce) {
    arcCommConfig_t config = ARC_COMM_CONFIG_INITIALIZER;
    config.all_reduce = &all_reduce;
    check(arcCommInitRankConfig(&comm_, ranks, id, rank, &config));
  }
  Communicator(int ranks, const arcUniqueId& id, int rank, const arcCommConfig_t& config) {
    check(arcCommInitRankConfig(&comm_, ranks, id, rank, &config));
  }
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() {
    if (comm_ != nullptr) arcCommDestroy(comm_);
  }

  arcComm_t get() const { return comm_; }
  // For arcCommInitRank inside a group, which fills it in at the group's end.
  arcComm_t* out() { return &comm_; }
  int ranks() const { return value<int>(arcCommCount); }
  int rank() const { return value<int>(arcCommUserRank); }
  std::uint64_t epoch() const { return value<std::uint64_t>(arcCommGetEpoch); }
  arcResult_t async_error() const { return value<arcResult_t>(arcCommGetAsyncError); }

  template <typename T>
  void all_reduce(const T* send, T* recv, std::size_t count, arcRedOp_t op = arcSum,
                  arcStream_t stream = nullptr) {
    all_reduce(send, recv, count, data_type<T>(), op, stream);
  }
  void all_reduce(const void* send, void* recv, std::size_t count, arcDataType_t dtype,
                  arcRedOp_t op, arcStream_t stream = nullptr) {
    check(arcAllReduce(send, recv, count, dtype, op, comm_, stream));
  }
  // With a codec, of which arclient.h says what it changes.
  template <typename T>
  void all_reduce(const T* send, T* recv, std::size_t count, arcRedOp_t op, arcCodec_t codec,
                  arcStream_t stream = nullptr) {
    all_reduce(send, recv, count, data_type<T>(), op, codec, stream);
  }
  void all_reduce(const void* send, void* recv, std::size_t count, arcDataType_t dtype,
                  arcRedOp_t op, arcCodec_t codec, arcStream_t stream = nullptr) {
    all_reduce(send, recv, count, dtype, op, with_codec(codec), stream);
  }
  void all_reduce(const void* send, void* recv, std::size_t count, arcDataType_t dtype,
                  arcRedOp_t op, const arcAllReduceConfig_t& config, arcStream_t stream = nullptr) {
    check(arcAllReduceWith(send, recv, count, dtype, op, &config, comm_, stream));
  }
  // On the host only. On GPUs there are no tickets: all_reduce() returns at once, and what needs
  // the result is ordered behind it on its stream.
  template <typename T>
  Ticket all_reduce_async(const T* send, T* recv, std::size_t count, arcRedOp_t op = arcSum) {
    return all_reduce_async(send, recv, count, data_type<T>(), op);
  }
  Ticket all_reduce_async(const void* send, void* recv, std::size_t count, arcDataType_t dtype,
                          arcRedOp_t op) {
    arcTicket_t ticket = 0;
    check(arcAllReduceAsync(send, recv, count, dtype, op, comm_, nullptr, &ticket));
    return Ticket(ticket);
  }
  Ticket all_reduce_async(const void* send, void* recv, std::size_t count, arcDataType_t dtype,
                          arcRedOp_t op, const arcAllReduceConfig_t& config) {
    arcTicket_t ticket = 0;
    check(arcAllReduceAsyncWith(send, recv, count, dtype, op, &config, comm_, nullptr, &ticket));
    return Ticket(ticket);
  }
  void rebuild() { check(arcCommRebuild(comm_)); }
  void abort() { check(arcCommAbort(std::exchange(comm_, nullptr))); }

 private:
  template <typename T>
  T value(arcResult_t (*ask)(arcComm_t, T*)) const {
    T found{};
    check(ask(comm_, &found));
    return found;
  }
  arcComm_t comm_ = nullptr;
};

// An AllReduce set up once and started many times.
class Plan {
 public:
  template <typename T>
  Plan(const Communicator& comm, const T* send, T* recv, std::size_t count, arcRedOp_t op = arcSum)
      : Plan(comm, send, recv, count, data_type<T>(), op) {}
  Plan(const Communicator& comm, const void* send, void* recv, std::size_t count,
       arcDataType_t dtype, arcRedOp_t op) {
    check(arcPlanCreateAllReduce(&plan_, send, recv, count, dtype, op, comm.get()));
  }
  Plan(const Communicator& comm, const void* send, void* recv, std::size_t count,
       arcDataType_t dtype, arcRedOp_t op, const arcAllReduceConfig_t& config) {
    check(arcPlanCreateAllReduceWith(&plan_, send, recv, count, dtype, op, &config, comm.get()));
  }
  Plan(Plan&& other) noexcept
      : plan_(std::exchange(other.plan_, nullptr)),
        started_(std::exchange(other.started_, false)) {}
  Plan& operator=(Plan&&) = delete;
  ~Plan() {
    if (plan_ == nullptr) return;
    if (started_) arcPlanWait(plan_, 0);
    arcPlanDestroy(plan_);
  }

  void start(arcStream_t stream = nullptr) {
    check(arcPlanStart(plan_, stream));
    started_ = true;
  }
  // On the host only. On GPUs start() returns at once, and what needs the result is ordered behind
  // it on its stream.
  void wait() {
    started_ = false;
    check(arcPlanWait(plan_, 0));
  }

 private:
  arcPlan_t plan_ = nullptr;
  bool started_ = false;
};

// Collects the calls of this thread. end() submits them and throws their first failure; a group
// that is left by an exception is ended without one.
class Group {
 public:
  Group() { check(arcGroupStart()); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (open_) arcGroupEnd();
  }
  void end() {
    open_ = false;
    check(arcGroupEnd());
  }

 private:
  bool open_ = true;
};

}  // namespace arc

#endif  // ARCLIENT_HPP_

// The proxy's half of one FIFO, without what differs between sending and receiving: what it was
// made with, what ends it, and how it lets go of the memory that the wire still uses.
// Thread: the proxy's. Owner: ProxyEngine.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "daemon/proxy/fifo/fifo_orders.h"
#include "daemon/proxy/fifo/slot_memory.h"
#include "daemon/proxy/wire.h"
#include "proto/gpu/device_fifo.h"
#include "proto/status.h"

namespace arcomm::proxy {

struct FifoConfig {
  FifoDirection direction = FifoDirection::Send;
  DeviceFifo* fifo = nullptr;  // zeroed; ProxyEngine::add() makes it ready
  SlotMemory memory;
  Wire* wire = nullptr;
  std::uint32_t lane = 0;
  int peer = -1;          // what the kernel calls it, and words of failures name
  std::string peer_name;  // for people: "node-b (10.0.0.2:7400)"
  // One fails, all do: those of one kernel, or of one communicator.
  std::uint64_t group = 0;
  std::shared_ptr<FifoOrders> orders;
};

class FifoSide {
 public:
  static std::unique_ptr<FifoSide> create(FifoConfig config);

  virtual ~FifoSide();
  FifoSide(const FifoSide&) = delete;
  FifoSide& operator=(const FifoSide&) = delete;

  // One step of each phase, where it can be made. True: something moved.
  bool progress(std::uint64_t now_ns);
  // The word goes up for the kernel at once; the wire's transfers end as they can, in progress().
  // The first reason stays.
  void fail(const Error& why);

  // A kernel that was launched before its order, which will not come: it is to end. Nothing where
  // an order has come, or the FIFO has failed.
  void end_early();
  // That kernel has ended: what it has staged is forgotten, and another may begin at the same step.
  void forget_early_kernel();

  bool is_open() const { return is_open_; }  // an operation is to be done
  const std::optional<Error>& failure() const { return failure_; }
  // Nothing of the wire's touches its memory. The kernel may: only the owner knows.
  bool is_quiet() const { return in_flight() == 0; }
  std::uint64_t deadline_ns() const { return config_.orders->deadline_ns(); }
  std::uint64_t group() const { return config_.group; }
  Wire* wire() const { return config_.wire; }
  void set_doorbell(std::uint32_t asleep);

 protected:
  // A step of which the proxy knows more than the FIFO says.
  struct Step {
    std::uint64_t offset = 0;  // that the pool gave
    std::span<std::byte> bytes;
    Wire::Transfer transfer = 0;
  };

  explicit FifoSide(FifoConfig config);

  virtual bool advance() = 0;
  // Steps that no operation waits for any more.
  virtual std::uint64_t ended() const = 0;
  // Those that the wire has, first to last.
  virtual std::uint64_t first_in_flight() const = 0;
  virtual std::uint64_t last_in_flight() const = 0;  // one past
  virtual std::string waits_for() const = 0;
  virtual void forget_early() {}

  Step& step(std::uint64_t number) { return steps_[slot_of(number)]; }
  FifoSlot& slot(std::uint64_t number) { return config_.fifo->slots[slot_of(number)]; }
  DeviceFifo& fifo() const { return *config_.fifo; }
  const FifoConfig& config() const { return config_; }
  bool uses_pool() const { return config_.memory.mode == SlotMode::Offset; }
  // A pool's slot for a step, if the FIFO may have one more; else false.
  bool take_slot(std::uint64_t number);
  void give_slot(std::uint64_t number);
  // Names this FIFO, its peer and its step.
  void fail_at(std::uint64_t number, const Error& why);

 private:
  std::uint64_t in_flight() const { return last_in_flight() - first_in_flight() - cancelled_; }
  bool let_go();
  void hear_kernel();
  void watch_deadline(std::uint64_t now_ns);

  FifoConfig config_;
  std::array<Step, kFifoSteps> steps_{};
  std::uint64_t slots_held_ = 0;  // of the pool
  std::array<bool, kFifoSteps> holds_{};
  std::uint64_t cancelled_ = 0;
  bool is_open_ = false;
  // Nothing moved, and no operation is there: only every so many rounds is it asked again how wire
  // and kernel are, since a short operation uses few of many lanes and waits for each round.
  static constexpr std::uint32_t kIdleRounds = 32;
  bool is_idle_ = false;
  std::uint32_t rounds_left_out_ = 0;
  std::optional<Error> failure_;
};

}  // namespace arcomm::proxy

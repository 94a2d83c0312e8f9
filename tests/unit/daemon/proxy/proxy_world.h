// Some nodes in one process: a proxy engine each, links between them, and host twins of the
// kernels, over a number of operations whose sums are known. Who moves when is the owner's to say:
// a scheduler, or threads. Threads: a node's parts as their own headers say.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/proxy/host/host_producer.h"
#include "daemon/proxy/proxy_engine.h"
#include "kernels/network/ring_steps.h"
#include "tests/support/sessions/memory_link.h"

namespace arcomm::proxy {

enum class Shape : std::uint8_t { Exchange, Ring, BothWays };

// Small enough to be printed and typed in again.
struct WorldPlan {
  Shape shape = Shape::Exchange;
  SlotMode mode = SlotMode::Normal;
  DType dtype = DType::Float32;
  bool is_wide = false;
  std::uint32_t nodes = 2, lanes = 1, operations = 1;
  std::uint64_t count = 100;
  std::uint64_t chunk_elements = 64;
  std::uint32_t share = kFifoSteps;  // slots of each FIFO, in Offset mode
  bool is_in_place = false;          // where partial and result are of one type
  // Kernels begin before their orders: an exchange in Normal mode.
  bool is_early = false;
  Codec codec = Codec::None;  // an exchange's, of what a codec serves; not wide
};

class WorldNode final : public ProxyEvents {
 public:
  WorldNode(const WorldPlan& plan, std::uint32_t number);

  // One FIFO's memory, words and orders; the engine's once it was added.
  struct Lane {
    FifoConfig config;
    std::shared_ptr<FifoOrders> orders;
    std::uint64_t steps = 0;  // the kernel's
    std::uint64_t first = 0;  // of the operation that runs
  };
  Lane& lane(std::uint32_t lane, std::uint32_t peer, FifoDirection direction);
  // Adds all FIFOs; `wire_to` gives the wire to each peer.
  void connect(ProxyEngine& engine, const std::function<Wire*(std::uint32_t)>& wire_to);
  // Orders, unless they come later, and blocks of the next operation, whose inputs are written.
  void begin(std::uint64_t timeout_ns, std::uint64_t deadline_ns,
             const std::function<std::uint64_t()>& clock, const std::function<void()>& wake);
  void order(std::uint64_t deadline_ns);
  // All that was ordered is done.
  bool is_settled() const {
    return std::ranges::all_of(lanes_, [](const Lane& lane) { return lane.orders->is_idle(); });
  }
  // The kernel once more, after one that was to end before it was ordered.
  void launch();
  // Empty: the operation's sums are right; else what is wrong.
  std::string check() const;

  void group_failed(std::uint64_t group, const Error& why) override;

  std::vector<HostBlock> blocks;      // of the operation that runs
  std::uint32_t operations = 0;       // that have begun
  bool is_ordered = false;            // the last of them
  bool is_leaving = false;            // it will not be, and its kernel is to end
  std::vector<std::string> failures;  // that the proxy told
  std::vector<FifoId> fifos;
  std::vector<DeviceFifo> words;

 private:
  std::uint64_t value(std::uint32_t node, std::uint64_t element) const;
  // The bits that all nodes are to have.
  std::vector<std::byte> expected() const;

  const WorldPlan plan_;
  const std::uint32_t number_;
  NetworkCall call_;
  const std::function<std::uint64_t()>* clock_ = nullptr;
  const std::function<void()>* wake_ = nullptr;
  std::vector<Lane> lanes_;
  std::vector<FifoPort> ports_;
  std::vector<std::byte> memory_;  // slots, pool or registered memory of all FIFOs
  std::unique_ptr<SharedSlots> pool_;
  std::vector<std::byte> partial_, result_;
};

struct ProxyWorld {
  ProxyWorld(const WorldPlan& plan, const MemoryLink::Options& options);

  MemoryLink& link(std::uint32_t a, std::uint32_t b);
  Wire* wire(std::uint32_t from, std::uint32_t to);

  const WorldPlan plan;
  std::vector<std::unique_ptr<MemoryLink>> links;  // [smaller][larger]
  std::vector<std::unique_ptr<WorldNode>> nodes;
};

}  // namespace arcomm::proxy

// Runs planned operations on this machine's cores. Small ones run at once on the worker's thread;
// large ones are cut into tiles that the device's streams and the worker pull, so that the worker
// comes back to its rings between two tiles. What spans nodes is HostNetwork's. Thread: the
// worker's; the streams' side is in HostLauncher. Never blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/exec/backend.h"
#include "daemon/exec/host/host_launcher.h"
#include "daemon/exec/net/host_network.h"
#include "daemon/exec/open_backend.h"
#include "daemon/memory/staging_pool.h"
#include "daemon/plan/planner.h"
#include "daemon/plan/tuning/tuning_table.h"

namespace arcomm {

class Device;

// For what goes between nodes.
struct HostStaging {
  std::uint64_t bytes = Settings::Net{}.staging_bytes;
  bool at_once = false;  // there are peers; else it is taken when one is first needed
};

class HostBackend final : public Backend {
 public:
  // `threads` pull tiles, the caller's included; 0: one per core that this process may use.
  static Result<std::unique_ptr<HostBackend>> create(Device& device, std::uint64_t threads,
                                                     BufferRegistry& buffers,
                                                     std::shared_ptr<const TuningTable> tuning,
                                                     HostStaging staging = {});
  HostBackend(const HostBackend&) = delete;
  HostBackend& operator=(const HostBackend&) = delete;

  // Ended where the operation is small.
  Started start(Communicator& communicator, std::uint64_t now_ns, Failure& failure) override;
  // One tile, of each operation in flight in turn: a request that comes meanwhile waits for no
  // more.
  bool work() override;
  bool collect(std::vector<Outcome>& outcomes) override;
  void stop(Communicator& communicator) override;
  bool idle() const override {
    return running_.empty() && backlog_.empty() && (network_ == nullptr || network_->idle());
  }

  NetworkExecutor* span_nodes(Links& links, const OfferedData& offered) override;
  bool awaits_nodes() const override {
    return running_.empty() && backlog_.empty() && network_ != nullptr && network_->awaits_peers();
  }

  void use_tuning(std::shared_ptr<const TuningTable> tuning) override {
    tuning_ = std::move(tuning);
  }
  // Keeps the table that is in force now with the communicator.
  Result<bool> form(const CommunicatorSpec& spec,
                    std::unique_ptr<CommunicatorExtension>& made) override;
  Result<BufferId> add_buffer(SessionId session, BufferSpec& spec) override;

 private:
  struct Run {
    Communicator* communicator = nullptr;
    TileJob* job = nullptr;
  };

  HostBackend(std::unique_ptr<HostLauncher> launcher, DeviceShape shape, BufferRegistry& buffers,
              std::shared_ptr<const TuningTable> tuning, std::unique_ptr<StagingPool> staging);
  // Waits: for a free job, which it gets only where it is the next in turn.
  enum class Begun : std::uint8_t { Ended, Running, Waits };
  Begun begin(Communicator& communicator, std::uint64_t now_ns, bool is_next);
  // Begins what has waited, as long as there are jobs.
  bool begin_backlog(std::vector<Outcome>& outcomes);

  BufferRegistry& buffers_;
  std::shared_ptr<const TuningTable> tuning_;  // of communicators to come
  DeviceShape shape_;
  std::unique_ptr<StagingPool> staging_;
  std::unique_ptr<HostNetwork> network_;  // null: nothing spans nodes
  const OfferedData* offered_ = nullptr;
  std::vector<Run> running_;
  std::size_t worked_last_ = 0;
  std::vector<Communicator*> backlog_;      // wait for a free job, oldest first
  AllReduceArgs args_;                      // of the operation that is being started
  std::unique_ptr<HostLauncher> launcher_;  // last: its streams leave before the rest goes
};

// Backends of that device, as the settings say. It outlives the backend.
OpenBackend host_backend_on(Device& device);

}  // namespace arcomm

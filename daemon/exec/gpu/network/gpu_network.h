// Operations of GPU communicators that span nodes. One kernel of the rank's stages its chunks in
// pinned memory and combines those of the other nodes with its own; the proxy's engine moves them
// in between, over the worker's links. Thread: the worker's, on which the engine is driven, too:
// links belong to it, and while something runs here it has nothing to wait for. Never blocks.
//
// All sizes go the way of exchange (plan/network/gpu_exchange.h), in one step on the wire: the
// bits of exchange and direct on hosts. Where each node has one rank its partial is what it sends,
// in its own type; else each node's kernel, on the GPU of its first rank, combines what its ranks
// send into accumulators, and stores the result into what all of them receive.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "daemon/exec/gpu/group/gpu_groups.h"
#include "daemon/exec/gpu/network/early_launches.h"
#include "daemon/exec/gpu/network/network_fifos.h"
#include "daemon/exec/gpu/network/node_places.h"
#include "daemon/exec/net/links/stalled_links.h"
#include "daemon/exec/net/network_executor.h"
#include "daemon/memory/buffer_registry.h"
#include "daemon/memory/staging_pool.h"
#include "daemon/proxy/proxy_engine.h"
#include "transport/device/device.h"

namespace arcomm {

class GpuNetwork final : public NetworkExecutor, private proxy::ProxyEvents {
 public:
  struct Staging {
    std::uint64_t bytes = 0;  // net.staging_bytes
    bool at_once = false;     // pinned before anybody asks for it
  };
  // Links and groups outlive it; its memory stays pinned until the process ends.
  static Result<std::unique_ptr<GpuNetwork>> create(GpuGroups& groups,
                                                    const BufferRegistry& buffers, Links& links,
                                                    Staging staging);

  ~GpuNetwork() override;

  // net.gpu_early_us; 0: no kernel is launched before the nodes have agreed.
  void use_early(std::uint64_t most_ns) { early_.use_most(most_ns); }

  void record_with(FlightRecorder& recorder) override { recorder_ = &recorder; }

  Status form(Communicator& communicator, const CommunicatorSpec& spec) override;
  void forget(Communicator& communicator) override;
  Offering offering(Communicator& communicator, const Arrival& arrival) override;
  void offer_came(Communicator& communicator, std::uint32_t node, std::uint64_t seq,
                  const net::OfferBody& offer) override;
  // It would have to be fetched from the GPU first.
  std::span<const std::byte> inline_data(Communicator&, const Arrival&) override { return {}; }
  Status receive(Communicator& communicator, std::uint32_t node, net::MessageKind kind,
                 const net::FrameHeader& names, std::span<const std::byte> body) override;

  void offered(Communicator& communicator, const Arrival& arrival) override;
  Backend::Started start(Communicator& communicator, const OfferedData& offered,
                         std::uint64_t now_ns, Failure& failure) override;
  bool work() override;
  bool collect(std::vector<Outcome>& outcomes) override;
  void stop(Communicator& communicator) override;
  bool idle() const override { return running_.empty() && early_.empty(); }

 private:
  struct Member {
    std::uint64_t group = 0;   // the engine's name for it
    std::uint64_t number = 0;  // all nodes' name for it
    Communicator* communicator = nullptr;
    std::unique_ptr<NetworkFifos> fifos;
    std::unique_ptr<NodePlaces> places;  // null once the communicator is gone
    bool has_failed = false;
    Failure failure;  // the first of its FIFOs
    // The seats had called, of the last operation: how far the nodes are in step.
    std::uint64_t agreed_after_ns = ~std::uint64_t{0};
  };
  struct Run {
    Communicator* communicator = nullptr;
    Member* member = nullptr;
    std::uint64_t turn = 0;  // the lower, the older: on all nodes alike
    bool waits = true;       // for its place on the GPU, on all nodes
    bool is_stopped = false, is_told = false;
    StalledLinks stalled = {};
    Failure failure;  // its own
  };

  GpuNetwork(GpuGroups& groups, const BufferRegistry& buffers, Links& links,
             std::unique_ptr<Device> host, std::uint64_t staging_bytes);
  Status pin();
  // Moves what runs, for the Quiescer. True: no kernel of it is on them, nor will be
  // before the worker's next turn.
  bool has_left_gpus();
  void group_failed(std::uint64_t group, const Error& why) override;
  Member* find(const Communicator& communicator) const;
  bool has_ended(const Run& run) const;
  static std::uint32_t blocks_of(const Member& member, const Arrival& arrival);
  static Status order(const Run& run);
  // All nodes have a place for it. False: it waits on.
  bool may_begin(const Run& run);
  bool launch(Run& run);
  // Places that others wait for, where they may be asked back, and those for what will not come.
  void recall_places();
  bool waits_for_older(const Run& run) const;
  void fail(Run& run, const Failure& why);
  void look_at(Run& run);
  static void leave_room(const Run& run);
  void note_steps(const Run& run);
  static std::vector<StalledLinks::Peer> peers_of(const Run& run);
  void begin_to_end(Run& run) const;
  void tend_leaving();

  GpuGroups& groups_;
  const BufferRegistry& buffers_;
  Links& links_;
  FlightRecorder* recorder_ = nullptr;
  std::unique_ptr<Device> host_;  // whose memory is pinned
  StagingPool pool_;
  bool is_pinned_ = false;
  proxy::ProxyEngine engine_{*this};
  std::uint64_t last_group_ = 0;
  std::unordered_map<const Communicator*, std::unique_ptr<Member>> members_;
  std::vector<std::unique_ptr<Member>> leaving_;
  std::vector<Run> running_;
  std::uint64_t clock_ = 0;  // the highest turn that an offer has had, here or elsewhere
  EarlyLaunches early_;
};

}  // namespace arcomm

// What control asks a device worker for, and what it gets: values and descriptors, moved from
// thread to thread. Untrusted where a client named it; the worker checks.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/comm/unique_id.h"
#include "daemon/plan/network_policy.h"
#include "proto/coding.h"
#include "proto/gpu/in_stream_call.h"
#include "proto/gpu/launch_table.h"
#include "proto/memory_handle.h"
#include "proto/operation_spec.h"
#include "proto/ring/segment.h"
#include "proto/types.h"
#include "proto/unique_fd.h"
#include "transport/net/connection.h"
#include "transport/net/regions.h"
#include "transport/net/streams/stream_thread.h"

namespace arcomm {

enum class CudaAlgorithm : std::uint8_t;

// As the kernel told them when the connection was accepted; pid 0 where the client lives in a PID
// namespace that the daemon cannot see.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

struct SessionLimits {
  std::uint32_t max_in_flight = 128;  // operations; never above the ring's slots
};

struct SessionSpec {
  SessionId id;
  PeerCredentials peer;
  std::string process_name;
  ring::Segment segment;
  UniqueFd doorbell;  // the eventfd whose other copy the client holds
  SessionLimits limits;
};

// Ranks that one GPU serves, alone in their communicators or not: control deals them out.
inline constexpr std::uint32_t kMaxRanksOfGpu = 1024;

// GPU workers: goes when nothing of that memory is left at the worker, on the worker's thread.
// Memory that was released, or that was mapped for a buffer that came to nothing, may stay until no
// kernel is in its way.
using MemoryToken = std::shared_ptr<const void>;

struct RankSpec {
  SessionId session;
  Rank rank = 0;
  std::string device = {};                     // GPU workers: "GPU-<uuid>"
  std::vector<std::string> visible_gpus = {};  // to the rank's process
  // What keeps the rank's process from in-stream operations, and its communicators with it.
  std::uint32_t in_stream_abi = kInStreamAbi;
  InStreamHindrance in_stream_hindrance = InStreamHindrance::None;
  MemoryToken token = {};  // GPU workers: of its mailbox and its exchange
};

// Which run of which daemon: a random number, another one after a restart. 0: none.
using PeerId = std::uint64_t;

// The connections of this daemon's worker to the worker of the same name of a peer. Stream 0
// carries messages and is driven by the worker; each of the others gets a thread, but where cores
// are few.
struct LinkSpec {
  PeerId peer = 0;
  std::string name;  // of the node, for people
  net::ConnectionPtr messages;
  std::vector<net::ConnectionPtr> bulk;
  std::vector<net::StreamOptions> bulk_options;  // one for each; none: the worker drives them
  std::shared_ptr<net::Regions> regions;         // that the connections' puts go into
};

struct NodeSpec {
  PeerId peer = 0;  // this daemon's own for this node
  std::string name;
};

struct CommunicatorSpec {
  UniqueIdBytes unique_id{};
  std::uint64_t epoch = 1;
  std::vector<RankSpec> ranks;    // of this node, all of them and sorted by rank
  std::uint64_t deadline_ns = 0;  // the caller waits until then; 0: as long as is usual
  // Where it spans several nodes; empty otherwise. Nodes in the order of their lowest ranks; each
  // has its open link.
  std::vector<std::uint32_t> node_of_rank = {};  // by global rank, an index of `nodes`
  std::vector<NodeSpec> nodes = {};
  std::uint32_t here = 0;          // this node's index
  std::uint64_t communicator = 0;  // what frames call it: random, the same on all nodes
  uid_t uid = 0;                   // whose ranks these are
  NetworkPolicy policy = {};       // the same on all nodes
  Coding default_coding = {};      // of operations that say nothing themselves; of all ranks alike
  // GPU workers: of each GPU, for the kernels of this communicator alone; 0: as many as pay.
  std::uint32_t most_sms = 0;
};

// Memory that a session may name in its requests. The descriptor is mapped by the worker and then
// closed.
struct BufferSpec {
  UniqueFd memory;  // memfd sealed against shrinking; GPU workers: an exported allocation, or none
  MemoryHandle handle = {};  // where in it; CudaIpc: instead of it
  // GPU workers only.
  std::string device = {};               // where it lives: "GPU-<uuid>"
  std::vector<MemoryChunk> chunks = {};  // instead of both, one behind the other
  std::uint64_t deadline_ns = 0;         // as CommunicatorSpec's
  MemoryToken token = {};
};

// GPU workers: memory to be allocated. device: "" for the worker's first.
struct AllocationSpec {
  std::string device;
  std::uint64_t bytes = 0;
  std::uint64_t deadline_ns = 0;  // as CommunicatorSpec's
  MemoryToken token = {};
};

// GPU workers: memory that the worker allocated, for the client to map.
struct AllocatedBuffer {
  BufferId buffer;
  UniqueFd memory;
  std::uint64_t length_bytes = 0;  // whole granules of the device
};

// GPU workers: a rank's proto/gpu/device_mailbox.h, and what it needs for in-stream operations
// where they are to be had, for the client to map. In the order of CreateCommunicatorReply.
struct MailboxDescriptors {
  std::vector<UniqueFd> descriptors;
  std::uint64_t mailbox_bytes = 0;
  std::uint64_t exchange_bytes = 0;  // 0: no in-stream operations
  LaunchTable launches;              // the same for all ranks
  std::string why_no_codecs = {};    // likewise; "" where they are served, or on one node
};

// GPU workers: what one measurement of `arctl tune` asks.
struct GpuMeasurement {
  std::optional<CudaAlgorithm> algorithm;  // none: an in-stream operation, as clients launch it
  std::uint64_t bytes = 0;                 // of one rank
};

// GPU workers: what a flag takes from a kernel to the CPU and back.
struct FlagEcho {
  std::uint64_t p50_ns = 0, p99_ns = 0;
  std::uint64_t times = 0;  // that it went
};

struct PlanSpec {
  MemberId member;
  BufferId send_buffer, recv_buffer;
  std::uint64_t send_offset_bytes = 0, recv_offset_bytes = 0;
  OperationSpec spec;
  std::uint64_t timeout_ns = 0;
};

}  // namespace arcomm

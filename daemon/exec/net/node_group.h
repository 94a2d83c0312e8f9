// What a communicator that spans nodes has of the network: memory that its peers' chunks go to, and
// where its own chunks go. Thread: the worker's; peers' bytes arrive on the streams' threads.
//
// Between each two nodes and in each direction chunks are numbered, from 0, over the communicator's
// life. Chunk n goes into slot n mod slots of the receiver's window; the slot's signal counts how
// often it was filled, since chunks overtake each other. The receiver uses chunks up in order, and
// one signal in the sender's own region counts them: chunk n may be put when n - slots have been
// used up. Results go straight into the memory that a peer has said is ready for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/exec/net/links/links.h"
#include "daemon/exec/net/loans.h"
#include "daemon/exec/net/step_notes.h"
#include "daemon/exec/specs.h"
#include "daemon/memory/staging_pool.h"
#include "proto/net/message.h"
#include "proto/status.h"
#include "transport/net/regions.h"

namespace arcomm {

class NodeGroup {
 public:
  // Of the buffers in which this node's own partial results lie while they are sent.
  static constexpr std::uint32_t kRooms = Loans::kAhead;

  // `has_rooms`: this node's partial results are not its one rank's input. Tells the peers.
  // ResourceExhausted, where there is not even one slot for each peer.
  static Result<std::unique_ptr<NodeGroup>> create(const CommunicatorSpec& spec, bool has_rooms,
                                                   StagingPool& pool, Links& links);
  ~NodeGroup();  // is_let_go() has said true, or nobody's bytes come any more
  NodeGroup(const NodeGroup&) = delete;
  NodeGroup& operator=(const NodeGroup&) = delete;

  std::uint32_t nodes() const { return static_cast<std::uint32_t>(peers_.size()); }
  std::uint32_t here() const { return here_; }
  const NetworkPolicy& policy() const { return policy_; }
  std::uint32_t slot_bytes() const { return slot_bytes_; }
  const NodeSpec& spec(std::uint32_t node) const { return peers_[node].spec; }
  net::Regions::Owner owner() const { return owner_; }
  Links& links() { return links_; }
  template <typename Visit>
  void for_each_peer(Visit visit) const {
    for (std::uint32_t node = 0; node < nodes(); ++node) {
      if (node != here_) visit(node);
    }
  }

  // A Window or Ready message. An error is the peer's fault.
  Status receive(std::uint32_t node, net::MessageKind kind, const net::FrameHeader& names,
                 std::span<const std::byte> body);

  // Has it a free slot?
  bool may_send(std::uint32_t node) const;
  // Puts the next chunk to this node, on loan until it has left. False: not yet (no slot is free,
  // or no stream); nothing was done.
  bool send(std::uint32_t node, std::uint64_t seq, std::span<const std::byte> payload,
            net::OnLoan& on_loan);
  // The oldest chunk of this node that was not used up; null where it is not there yet.
  const std::byte* arrived(std::uint32_t node) const;
  void use_up(std::uint32_t node) { ++peers_[node].used_up; }
  // Tells their senders, where it is half a window: the other half is still free. Call it now and
  // then while an operation runs; what is left over is told with a later one.
  void give_credits();

  // Where a node wants its part of the results of `seq`; null where it has not said so yet.
  const net::ReadyBody* ready(std::uint32_t node, std::uint64_t seq) const;
  void tell_ready(std::uint64_t seq, const net::ReadyBody& ready);
  // `payload` for byte `offset` of them, and signal ready.signal + `signal`. As send().
  bool put(std::uint32_t node, std::uint64_t seq, std::uint64_t offset, std::uint32_t signal,
           std::span<const std::byte> payload, net::OnLoan& on_loan);

  std::byte* room(std::uint64_t chunk) const {
    return rooms_.data() + chunk % kRooms * slot_bytes_;
  }
  // One more, for what is not sent.
  std::byte* scratch() const { return rooms_.data() + std::size_t{kRooms} * slot_bytes_; }
  bool has_rooms() const { return !rooms_.empty(); }
  // Rooms for a communicator that was made without, whose operation asks for a codec.
  // ResourceExhausted, as create(). Again: no effect.
  Status make_rooms();
  // And such in which encoded results lie while they are sent.
  Status make_result_rooms();
  std::byte* result_room(std::uint64_t chunk) const {
    return result_rooms_.data() + chunk % Loans::kAhead * slot_bytes_;
  }

  // Of the operation that runs. What is posted and credited here is noted; the caller that takes
  // what arrives notes that.
  StepNotes& notes() { return notes_; }

  // Payloads that came changed into its slots.
  net::Regions::Damage damage() const { return links_.regions()->damaged(region_); }

  Loans& partials() { return partials_; }  // on loan from send() and put(), as operations use them
  Loans& results() { return results_; }
  const Loans& partials() const { return partials_; }
  const Loans& results() const { return results_; }

  // Nothing of it runs any more. False: a peer's bytes are still on their way in, or ours on their
  // way out; ask again.
  bool is_let_go();

 private:
  struct Peer {
    NodeSpec spec;
    // To it.
    net::WindowBody window;  // slots 0: not told yet
    std::uint64_t sent = 0;  // chunks
    // From it.
    std::byte* slots = nullptr;
    std::uint64_t used_up = 0, credited = 0;  // chunks
    net::ReadyBody ready;
    std::uint64_t ready_seq = 0;  // region 0: none
  };

  NodeGroup(const CommunicatorSpec& spec, StagingPool& pool, Links& links);
  Status open(bool has_rooms);
  Status take_window(Peer& peer, const net::WindowBody& window) const;
  net::FrameHeader header(net::FrameKind kind, std::uint64_t seq) const;
  bool post(const Peer& peer, const net::Frame& frame, net::OnLoan& on_loan);
  bool are_back() const {
    return partials_.are_back() && results_.are_back() &&
           credits_on_loan_.load(std::memory_order_acquire) == 0;
  }
  // Signals of the region: a credit for each node, then those of each node's slots.
  std::uint32_t first_arrival(std::uint32_t node) const { return nodes() + node * slots_; }

  StagingPool& pool_;
  Links& links_;
  const uid_t uid_;
  const std::uint32_t here_;
  const NetworkPolicy policy_;
  const net::Regions::Owner owner_;
  std::vector<Peer> peers_;  // by node; this one's is not used
  std::uint32_t slot_bytes_ = 0, slots_ = 0;
  std::span<std::byte> memory_, rooms_;  // rooms_ is of it, or own_rooms_
  std::span<std::byte> own_rooms_, result_rooms_;
  std::unique_ptr<net::SignalWord[]> signals_;
  net::RegionId region_ = 0;
  Loans partials_, results_;
  net::OnLoan credits_on_loan_{0};
  StepNotes notes_;
};

}  // namespace arcomm

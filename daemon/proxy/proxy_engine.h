// Drives any number of FIFOs between kernels and wires, a step of each phase at a time, each FIFO
// in its turn. Reads no clock and waits for nothing: progress() is called again and again by
// ProxyThread, or by a test that decides what happens when. Thread: one at a time, the proxy's;
// orders of operations come by FifoOrders. What a config names outlives its FIFO.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "daemon/proxy/fifo/fifo_side.h"
#include "proto/status.h"

namespace arcomm::proxy {

using FifoId = std::uint64_t;  // never used again

// Called from inside of progress() or fail_group(), on its thread. Adds and removes no FIFO.
class ProxyEvents {
 public:
  virtual ~ProxyEvents() = default;
  // Once for a group: none of its FIFOs moves any more, and its kernels have been told.
  virtual void group_failed(std::uint64_t group, const Error& why) = 0;
};

class ProxyEngine {
 public:
  explicit ProxyEngine(ProxyEvents& events) : events_(events) {}

  // Makes the FIFO's words new; no kernel uses them yet. Of a group that has failed none is taken
  // before all of it has been removed.
  Result<FifoId> add(FifoConfig config);
  // False: the wire still has transfers in its memory, which a failure takes back in progress().
  // The caller has seen its kernel end; one that was open or in the middle of a step is to be
  // failed first.
  bool remove(FifoId id);
  // Raises the word of every FIFO of the group, then lets go.
  void fail_group(std::uint64_t group, const Error& why);

  // The group's kernel, launched before its orders and when those of all others were done, is to
  // end, since they will not come; and, when it has ended: its FIFOs are as they were before it.
  void end_early(std::uint64_t group);
  void forget_early(std::uint64_t group);

  // Goes round once. True: something moved, come again.
  bool progress(std::uint64_t now_ns);

  // Whether anything is to be expected of wires or kernels: an operation, or a transfer to be taken
  // back. Of the last progress().
  bool is_open() const { return is_open_; }
  std::uint64_t next_deadline_ns() const;
  // Tells CPUs that fill FIFOs whether they are to wake this thread (DeviceFifo::doorbell).
  void set_doorbells(std::uint32_t asleep);
  // To be polled while nothing moves.
  void list_descriptors(std::vector<int>& descriptors) const;
  std::size_t fifos() const { return fifos_.size(); }

 private:
  struct Member {
    FifoId id = 0;
    std::unique_ptr<FifoSide> side;
  };

  void use_wire(Wire* wire, int more);

  ProxyEvents& events_;
  std::vector<Member> fifos_;
  std::map<Wire*, int> wires_;  // how many FIFOs use each
  FifoId next_id_ = 1;
  std::size_t first_ = 0;  // whose turn it is to be first
  bool is_open_ = false;
};

}  // namespace arcomm::proxy

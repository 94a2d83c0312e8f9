// What a worker's memory was charged. The record of it here may go before the memory does: what was
// released, or had been mapped for a registration that failed, stays at the worker until the GPUs
// can do without it. So the worker gets a token with the memory, and the charges go with the last
// of record and token. Thread: the control loop; tokens may go on any, and after this.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "daemon/control/rpc/event_loop.h"
#include "daemon/exec/specs.h"

namespace arcomm {

class ChargesAtWorkers {
 public:
  explicit ChargesAtWorkers(EventLoop& loop);
  ~ChargesAtWorkers();  // gives back what tokens still stand for
  ChargesAtWorkers(const ChargesAtWorkers&) = delete;
  ChargesAtWorkers& operator=(const ChargesAtWorkers&) = delete;

  // For one who may keep it longer than `charges`, which are the uid's, are held here.
  MemoryToken token_of(uid_t uid, std::shared_ptr<const void> charges);
  bool has_any(uid_t uid) const { return kept_->of_uid.contains(uid); }

 private:
  struct Loop;
  struct Kept {
    std::unordered_map<std::uint64_t, std::shared_ptr<const void>> charges;
    std::unordered_map<uid_t, std::size_t> of_uid;  // how many; none is 0
  };

  const std::shared_ptr<Loop> loop_;
  const std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();  // of the loop alone
  std::uint64_t next_ = 1;
};

}  // namespace arcomm

// Network to kernel. Four counts, each at most the one before it and never more than eight apart:
//   posted       the wire may write the step's room
//   received     it has: all bytes are there
//   transmitted  they are flushed, and the kernel has been told
//   done         the kernel has consumed them; the slot is free
// Thread and owner: fifo_side.h.
#pragma once

#include "daemon/proxy/fifo/fifo_side.h"

namespace arcomm::proxy {

class ReceiveSide final : public FifoSide {
 public:
  explicit ReceiveSide(FifoConfig config);

 private:
  bool advance() override;
  std::uint64_t ended() const override { return points() ? transmitted_ : done_; }
  std::uint64_t first_in_flight() const override { return received_; }
  std::uint64_t last_in_flight() const override { return posted_; }
  std::string waits_for() const override;

  bool points() const { return config().memory.mode == SlotMode::Pointer; }
  bool post();
  bool find_room(std::uint64_t number);
  bool receive();
  bool transmit();
  bool finish();

  std::uint64_t posted_ = 0, received_ = 0, transmitted_ = 0, done_ = 0;
  std::uint64_t granted_ = 0;   // by the kernel, as far as it was found good
  bool room_is_found_ = false;  // of the step that is to be posted next
};

}  // namespace arcomm::proxy

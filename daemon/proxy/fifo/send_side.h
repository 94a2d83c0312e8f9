// Kernel to network. Four counts, each at most the one before it and never more than eight apart:
//   posted       the kernel may stage the step
//   filled       it has, and its entry was copied and found good
//   transmitted  the wire has taken it
//   done         the wire needs it no more; the slot is free
// Thread and owner: fifo_side.h.
#pragma once

#include "daemon/proxy/fifo/fifo_side.h"

namespace arcomm::proxy {

class SendSide final : public FifoSide {
 public:
  explicit SendSide(FifoConfig config);

 private:
  bool advance() override;
  std::uint64_t ended() const override { return done_; }
  std::uint64_t first_in_flight() const override { return done_; }
  std::uint64_t last_in_flight() const override { return transmitted_; }
  std::string waits_for() const override;
  void forget_early() override;

  bool post();
  bool fill();
  bool transmit();
  bool finish();

  std::uint64_t posted_ = 0, filled_ = 0, transmitted_ = 0, done_ = 0;
};

}  // namespace arcomm::proxy

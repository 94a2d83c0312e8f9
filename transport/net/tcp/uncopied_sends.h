// The sends of a socket that did not copy (MSG_ZEROCOPY): the kernel reads the sender's memory
// until the peer has acknowledged it, and says in the socket's error queue when it has let go.
// Positions are bytes of the stream since its beginning. Thread: the connection's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace arcomm::net {

class UncopiedSends {
 public:
  // Whether one more can be kept in mind; if not, a send has to copy.
  bool has_room() const { return begun_ - first_ < kMost; }
  // A send without a copy took bytes from `position` on. Precondition: has_room().
  void begun(std::uint64_t position);
  // Takes what the error queue holds. True: the kernel has let go of something.
  bool collect(int descriptor);

  bool is_empty() const { return first_ == begun_; }
  // Everything before this is the sender's again, if `sent` bytes were sent in all.
  std::uint64_t released(std::uint64_t sent) const;

  std::uint64_t count() const { return begun_; }
  // Of them those that the kernel copied nevertheless, as it does over loopback.
  std::uint64_t copied() const { return copied_; }

 private:
  static constexpr std::size_t kMost = 512;
  struct Send {
    std::uint64_t position = 0;
    bool is_over = false;
  };
  Send& send(std::uint64_t number) { return (*sends_)[number % kMost]; }
  void over(std::uint32_t from, std::uint32_t to);

  std::unique_ptr<std::array<Send, kMost>> sends_;  // made with the first
  std::uint64_t first_ = 0;                         // that is not over
  std::uint64_t begun_ = 0;                         // the kernel counts them, too, in 32 bits
  std::uint64_t copied_ = 0;
};

}  // namespace arcomm::net

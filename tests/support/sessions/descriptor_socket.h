// One end of the daemon's fd.sock, which says what the test wants it to: a message out, its answer
// in, with descriptors either way. Thread: one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/fd_message.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm::support {

class DescriptorSocket {
 public:
  DescriptorSocket() = default;  // connected to nothing
  static Result<DescriptorSocket> connect(const std::string& path);

  // offered: goes with the request, and stays the caller's; -1: none. An Error is what the daemon
  // answered, or that it did not.
  Result<FdMessage> ask(const FdMessage& request, int offered = -1,
                        std::vector<UniqueFd>* received = nullptr) const;
  Result<std::vector<UniqueFd>> fetch(std::uint64_t ticket) const;

 private:
  explicit DescriptorSocket(UniqueFd socket) : socket_(std::move(socket)) {}
  UniqueFd socket_;
};

}  // namespace arcomm::support

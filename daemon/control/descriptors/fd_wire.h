// One message of the descriptor socket (proto/fd_message.h) in and out of a SOCK_SEQPACKET socket,
// with descriptors. What arrives is a stranger's: length, magic, kind and number of descriptors are
// checked here and nowhere else, and what came besides memory, or with a message that is refused,
// is handed to the closer. Nothing blocks. Any thread.
#pragma once

#include <span>
#include <vector>

#include "daemon/control/descriptors/fd_closer.h"
#include "proto/fd_message.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

struct FdRequest {
  FdMessage message;
  std::vector<UniqueFd> fds;  // memfds only: of an Offer one, or none where it was no memfd
};

enum class FdReceive : std::uint8_t { Message, Nothing, HungUp };

// Nothing: no message waits. An Error means that the peer broke the protocol: close the connection.
// `peer` sent what goes to the closer.
Result<FdReceive> receive_fd_request(int socket_fd, FdRequest& request, FdCloser& closer,
                                     uid_t peer);

// The rules of a request, apart from the socket: Hello and Fetch carry no descriptor, Offer exactly
// one.
Status check_fd_request(std::span<const std::byte> bytes, std::size_t fds);

Status send_fd_answer(int socket_fd, const FdMessage& answer, std::span<const UniqueFd> fds);

}  // namespace arcomm

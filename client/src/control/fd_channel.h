// The descriptor socket (proto/fd_message.h): fetches and offers descriptors, and tells by its
// hang-up that the daemon, or this session, is gone.
// Thread: any; requests take turns. Owns the socket for the session's life.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/src/control/node_control.h"
#include "client/src/session/deadline.h"
#include "client/src/session/deadline_mutex.h"
#include "proto/fd_message.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm::client {

class FdChannel {
 public:
  // Connects and says which session this is.
  static Result<std::unique_ptr<FdChannel>> open(const std::string& path, const SessionKey& session,
                                                 Deadline deadline);
  ~FdChannel();
  FdChannel(const FdChannel&) = delete;
  FdChannel& operator=(const FdChannel&) = delete;

  // Exactly `count` descriptors, or an error.
  Result<std::vector<UniqueFd>> fetch(std::uint64_t ticket, std::size_t count, Deadline deadline);
  // The descriptor stays the caller's; the ticket goes into RegisterBuffer. Nothing is
  // sent once the deadline has passed; the answer may take kGuard longer.
  Result<std::uint64_t> offer(int fd, Deadline deadline);
  // One system call; never blocks.
  bool hung_up() const;

 private:
  FdChannel(UniqueFd socket, std::string path);
  struct Answer {
    FdMessage message;
    std::vector<UniqueFd> descriptors;
  };
  Result<Answer> exchange(const FdMessage& request, int attached_fd, Deadline deadline);
  Status send(const FdMessage& request, int attached_fd, Deadline deadline);
  Result<Answer> receive(Deadline deadline);

  UniqueFd socket_;
  std::string path_;
  DeadlineMutex mutex_;
};

}  // namespace arcomm::client

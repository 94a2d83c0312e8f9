// The daemon's three sockets: made in the runtime folder, or taken over from systemd (socket
// activation). Ownership: a ListeningSocket owns its descriptor; one that was made here unlinks its
// path when it goes.
#pragma once

#include <string>
#include <vector>

#include "config/settings.h"
#include "daemon/control/access/caller.h"
#include "daemon/control/access/peer_credentials.h"
#include "daemon/telemetry/sd_notify.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

std::string_view file_name_of(SocketKind kind);  // "client.sock"

class ListeningSocket {
 public:
  ListeningSocket(SocketKind kind, UniqueFd fd, std::string path, bool made_here)
      : kind_(kind), fd_(std::move(fd)), path_(std::move(path)), made_here_(made_here) {}
  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  SocketKind kind() const { return kind_; }
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  void rename_to(std::string path) { path_ = std::move(path); }  // after the file was renamed
  // Nobody can connect any more to one that was made here. What is left to be closed: that may take
  // long (fd_closer.h).
  UniqueFd retire();
  // Mode and group of a socket made here; systemd sees to those it passed. Looks nothing up.
  void use_groups(const AccessGroups& groups, std::vector<std::string>& warnings) const;

 private:
  SocketKind kind_;
  UniqueFd fd_;
  std::string path_;
  bool made_here_;
};

// Replaces whatever stale socket bears the name: the caller holds the instance lock. Its mode is
// 0660 from the first moment that anybody can connect, whatever the umask. With an unknown group
// the socket is the owner's alone, and a warning says so.
Result<ListeningSocket> make_socket(SocketKind kind, const std::string& runtime_dir,
                                    const AccessGroups& groups, std::vector<std::string>& warnings);

// The sockets among what systemd passed to this process, told apart by their file names. What is no
// socket is closed and logged: a daemon of another version left it in the descriptor store.
Result<std::vector<ListeningSocket>> take_passed_sockets(std::vector<InheritedSocket> passed);

// All three: what was passed, and the rest made. A passed one that everybody may connect to is
// warned of: its unit says so, and the gate turns strangers away all the same.
Result<std::vector<ListeningSocket>> open_sockets(const Settings& settings,
                                                  const AccessGroups& groups,
                                                  std::vector<InheritedSocket> passed,
                                                  std::vector<std::string>& warnings);

}  // namespace arcomm

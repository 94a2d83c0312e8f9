#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/integration/hostile/attack.h"

namespace arcomm::support {
namespace {

UniqueFd connect_to(const std::string& path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    fd.reset();
  return fd;
}

}  // namespace

std::string Attacker::random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random_());
  return bytes;
}

UniqueFd Attacker::connect_packets() const {
  return connect_to(fd_socket(), SOCK_SEQPACKET);
}
UniqueFd Attacker::connect_stream() const {
  return connect_to(client_socket(), SOCK_STREAM);
}
UniqueFd Attacker::connect_metrics() const {
  return connect_to(runtime_dir_ + "/../metrics.sock", SOCK_STREAM);  // as DaemonProcess has it
}

RawSession* Attacker::session() {
  return sessions_.empty() ? fresh_session() : sessions_[below(sessions_.size())].get();
}

RawSession* Attacker::fresh_session(RawSession::Options options) {
  Result<std::unique_ptr<RawSession>> attached =
      RawSession::attach(runtime_dir_, std::move(options));
  if (!attached) return nullptr;
  sessions_.push_back(std::move(*attached));
  return sessions_.back().get();
}

UniqueFd make_sparse(std::uint64_t bytes) {
  UniqueFd fd(::memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd && (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
             ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0)) {
    fd.reset();
  }
  return fd;
}

}  // namespace arcomm::support

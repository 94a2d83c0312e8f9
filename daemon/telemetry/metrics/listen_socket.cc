#include "daemon/telemetry/metrics/listen_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

namespace arcomm {
namespace {

constexpr int kBacklog = 16;
constexpr std::string_view kUnix = "unix:";

Error cannot_listen(const std::string& address, int failure) {
  const ErrorCode code = failure == EADDRINUSE ? ErrorCode::AlreadyExists
                         : failure == EACCES   ? ErrorCode::PermissionDenied
                                               : ErrorCode::Unavailable;
  return error(code, Reason::BadConfig, "metrics.listen: cannot listen on ", address, ": ",
               std::strerror(failure), "; choose another address, or \"\" for none");
}

bool somebody_listens(const sockaddr_un& address) {
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
             0 ||
         errno == EAGAIN;
}

Result<ListenSocket> listen_unix(const std::string& address) {
  const std::string path = address.substr(kUnix.size());
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(name.sun_path))
    return cannot_listen(address, ENAMETOOLONG);
  std::memcpy(name.sun_path, path.data(), path.size());
  struct stat existing {};
  if (::lstat(path.c_str(), &existing) == 0) {
    if (!S_ISSOCK(existing.st_mode) || somebody_listens(name))
      return cannot_listen(address, EADDRINUSE);
    ::unlink(path.c_str());  // left behind by a process that died
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0)
    return cannot_listen(address, errno);
  if (::chmod(path.c_str(), 0666) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    const int failure = errno;
    ::unlink(path.c_str());
    return cannot_listen(address, failure);
  }
  return ListenSocket{.fd = std::move(fd), .address = address, .unlink_path = path};
}

Result<ListenSocket> listen_tcp(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  std::uint16_t port = 0;
  const char* const end = address.data() + address.size();
  if (colon == std::string::npos ||
      std::from_chars(address.data() + colon + 1, end, port).ptr != end)
    return cannot_listen(address, EINVAL);
  const bool is_v6 = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (is_v6) host = host.substr(1, host.size() - 2);
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  v4.sin_port = v6.sin6_port = htons(port);
  if (::inet_pton(is_v6 ? AF_INET6 : AF_INET, host.c_str(),
                  is_v6 ? static_cast<void*>(&v6.sin6_addr) : &v4.sin_addr) != 1)
    return cannot_listen(address, EINVAL);
  auto* name = is_v6 ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4);
  socklen_t length = is_v6 ? sizeof(v6) : sizeof(v4);
  UniqueFd fd(::socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(fd.get(), name, length) != 0 || ::listen(fd.get(), kBacklog) != 0 ||
      ::getsockname(fd.get(), name, &length) != 0)
    return cannot_listen(address, errno);
  const std::uint16_t bound = ntohs(is_v6 ? v6.sin6_port : v4.sin_port);
  return ListenSocket{.fd = std::move(fd),
                      .address = address.substr(0, colon + 1) + std::to_string(bound),
                      .unlink_path = ""};
}

}  // namespace

Result<ListenSocket> open_listen_socket(const std::string& address) {
  return std::string_view(address).starts_with(kUnix) ? listen_unix(address) : listen_tcp(address);
}

}  // namespace arcomm

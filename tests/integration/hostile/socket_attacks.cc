// Attacks of somebody who can connect, and does not attach.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "proto/fd_message.h"
#include "tests/integration/hostile/attack.h"
#include "tests/support/sessions/descriptor_message.h"
#include "tests/support/sessions/lingering_socket.h"

namespace arcomm::support {
namespace {

// False: the daemon closed, or says nothing for a while.
bool is_answered(int socket_fd) {
  pollfd waiting{socket_fd, POLLIN, 0};
  FdMessage answer;
  return ::poll(&waiting, 1, 200) > 0 && ::recv(socket_fd, &answer, sizeof(answer), 0) > 0;
}

std::uint64_t refused_hellos(Attacker& attacker) {
  std::uint64_t sent = 0;
  const UniqueFd fd = attacker.connect_packets();
  FdMessage hello;
  while (fd && attacker.goes_on()) {
    hello.session = attacker.random()();
    if (::send(fd.get(), &hello, sizeof(hello), MSG_NOSIGNAL) < 0 || !is_answered(fd.get())) break;
    ++sent;
  }
  return sent;
}

std::uint64_t silent_connections(Attacker& attacker) {
  std::uint64_t made = 0;
  for (; made < 200 && attacker.goes_on(); ++made) {
    UniqueFd fd = made % 2 == 0 ? attacker.connect_packets() : attacker.connect_stream();
    if (!fd) break;
    attacker.hold(std::move(fd));
  }
  return made;
}

std::uint64_t connections_that_go_at_once(Attacker& attacker) {
  std::uint64_t made = 0;
  for (; attacker.goes_on(); ++made) {
    const UniqueFd fd = made % 2 == 0 ? attacker.connect_packets() : attacker.connect_stream();
    if (!fd) ::usleep(1000);
  }
  return made;
}

std::uint64_t rubbish(Attacker& attacker) {
  std::uint64_t sent = 0;
  for (; attacker.goes_on(); ++sent) {
    const bool packets = attacker.below(2) == 0;
    UniqueFd fd = packets ? attacker.connect_packets() : attacker.connect_stream();
    if (!fd) break;
    std::string bytes = attacker.random_bytes(1 + attacker.below(packets ? 200 : 20'000));
    if (!packets && attacker.below(2) == 0) bytes.insert(0, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    static_cast<void>(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
    if (attacker.below(20) == 0) attacker.hold(std::move(fd));
  }
  return sent;
}

// Memory whose pages are there takes long to close, and who closes it last pays.
std::uint64_t offers_without_hello(Attacker& attacker) {
  std::uint64_t sent = 0;
  for (; attacker.goes_on(); ++sent) {
    const UniqueFd fd = attacker.connect_packets();
    UniqueFd memory(::memfd_create("huge", MFD_CLOEXEC));
    if (!fd || !memory || ::ftruncate(memory.get(), off_t{12} << 30) != 0 ||
        ::fallocate(memory.get(), 0, 0, off_t{64} << 20) != 0) {
      break;
    }
    if (!send_descriptor(fd.get(), memory.get())) break;
    memory.reset();
    static_cast<void>(is_answered(fd.get()));
  }
  return sent;
}

std::uint64_t lingering_sockets(Attacker& attacker) {
  std::uint64_t sent = 0;
  for (; sent < 8 && attacker.goes_on(); ++sent) {
    const bool packets = sent % 2 == 0;
    UniqueFd fd = packets ? attacker.connect_packets() : attacker.connect_stream();
    if (!fd) break;
    LingeringSocket stuck(2);
    if (packets) {
      send_descriptor(fd.get(), stuck.end.get());
    } else {
      constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
      send_with_descriptor(fd.get(), kPreface.data(), kPreface.size(), stuck.end.get());
    }
    stuck.end.reset();
    attacker.hold(std::move(stuck.deaf));
    attacker.hold(std::move(fd));
  }
  return sent;
}

// Messages of every length and kind, with as many descriptors as a message can have.
std::uint64_t torn_messages(Attacker& attacker) {
  std::uint64_t sent = 0;
  const UniqueFd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (; attacker.goes_on(); ++sent) {
    const UniqueFd fd = attacker.connect_packets();
    if (!fd) break;
    std::string bytes = attacker.random_bytes(attacker.below(4096) + 1);
    FdMessage message;
    message.kind = static_cast<FdMessageKind>(attacker.below(6));
    if (attacker.below(2) == 0)
      bytes.assign(reinterpret_cast<const char*>(&message), sizeof(message));
    constexpr std::size_t kMost = 250;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMost)> control{};
    const std::size_t count = attacker.below(kMost + 1);
    iovec part{bytes.data(), bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (count > 0) {
      header.msg_control = control.data();
      header.msg_controllen = CMSG_SPACE(sizeof(int) * count);
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int) * count);
      for (std::size_t i = 0; i < count; ++i) {
        const int which = file.get();
        std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &which, sizeof(which));
      }
    }
    static_cast<void>(::sendmsg(fd.get(), &header, MSG_NOSIGNAL));
  }
  return sent;
}

}  // namespace

std::span<const Attack> socket_attacks() {
  static constexpr Attack kAttacks[] = {
      {"refused Hellos", refused_hellos},
      {"silent connections", silent_connections},
      {"connections that go at once", connections_that_go_at_once},
      {"rubbish on sockets", rubbish},
      {"offers without Hello, huge memfds", offers_without_hello},
      {"lingering sockets sent", lingering_sockets},
      {"torn descriptor messages", torn_messages}};
  return kAttacks;
}

}  // namespace arcomm::support

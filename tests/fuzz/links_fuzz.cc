// What a broken or hostile daemon does while a link is made, on either side: its answer to Connect
// and what it says on the connections that we open then, or what it asks for and how it greets us
// on those that we wait for. A link stands only if each of its connections showed what was agreed,
// and what is said of one that does not is fit for a log.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/control/peers/links/link_streams.h"
#include "proto/text.h"
#include "transport/net/sealing.h"
#include "transport/net/tcp/socket.h"

namespace {

using namespace arcomm;  // NOLINT(google-build-using-namespace)

constexpr std::size_t kConnections = 8;  // of the other daemon's, at a time
const PeerNode kSelf{.address = "10.0.0.1:7400", .name = "self", .instance = 1};
const PeerNode kPeer{.address = "10.0.0.2:7400", .name = "peer", .instance = 2};
const LinkName kLink{kPeer.instance, 0};

void check(bool holds) {
  if (!holds) __builtin_trap();
}

void check_words(const Error& why) {
  check(!why.message.empty());
  check(safe_text(why.message, 4 * why.message.size()) == why.message);
}

// What is said on one connection: a byte that says which and how, and bytes.
struct Part {
  std::uint8_t what = 0;
  std::string_view bytes;
};
enum class Saying : std::uint8_t { AsItIs, Framed, Right, End };

std::vector<Part> parts_of(const std::uint8_t* data, std::size_t size) {
  std::vector<Part> parts;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  for (std::size_t at = 0; at + 3 <= size && parts.size() < 32;) {
    const std::size_t length =
        std::min<std::size_t>(data[at + 1] + 256u * data[at + 2], size - at - 3);
    parts.push_back({data[at], all.substr(at + 3, length)});
    at += 3 + length;
  }
  return parts;
}

std::string frame(net::FrameKind kind, std::string_view payload) {
  net::FrameHeader header{.kind = kind};
  const std::string_view fits = payload.substr(0, net::kMostMessageBytes);
  net::seal(header, std::as_bytes(std::span(fits)));
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  return bytes.append(fits);
}

// This daemon's ports, and one where the other daemon is reached.
struct Network {
  Network() {
    std::vector<net::InterfaceChoice> choices;
    for (const char* host : {"127.0.0.1", "127.0.0.2"})
      choices.push_back({.interface = {.name = host, .host = host, .prefix_bits = 8},
                         .is_chosen = true,
                         .why = ""});
    check(ports.open(std::move(choices)).ok());
    listener = net::listen_on({.host = "127.0.0.3", .port = 0}).value();
    address = net::address_of(listener.get()).value();
  }

  std::unique_ptr<EventLoop> loop = EventLoop::create().value();
  DataPorts ports{
      {.loop = *loop, .peer_timeout = std::chrono::seconds(10), .check_key = {}, .accepted = {}}};
  UniqueFd listener;
  net::Address address;
};

Network& network() {
  static Network one;
  return one;
}

// An end of the other daemon's.
class FarEnd {
 public:
  explicit FarEnd(UniqueFd socket) : socket_(std::move(socket)) {
    // Its port is free again at once.
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  void say(std::string_view bytes) {
    (void)::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // As much as has come of a frame and its payload.
  std::string hear(std::size_t payload) {
    std::string bytes(sizeof(net::FrameHeader) + payload, '\0');
    const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return bytes;
  }
  void end() { socket_.reset(); }
  bool is_there() const { return static_cast<bool>(socket_); }

 private:
  UniqueFd socket_;
};

std::string_view payload_of(std::string_view framed) {
  return framed.substr(std::min(framed.size(), sizeof(net::FrameHeader)));
}

// ---- we connect ----

// Nobody else is dialled, whatever address the reply has: one that can be read leads to us.
v1::ConnectReply reply_of(const Part& part) {
  v1::ConnectReply reply;
  (void)reply.ParseFromArray(part.bytes.data(), static_cast<int>(part.bytes.size()));
  for (unsigned good = part.what >> 5; good > 0; --good) {
    v1::ConnectReply::Stream& stream = *reply.add_streams();
    stream.set_stream(static_cast<std::uint32_t>(reply.streams_size()) - 1);
    stream.set_rail(good);
    stream.set_address("127.0.0.1:1");
    stream.set_key(std::string(32, static_cast<char>(good)));
    stream.set_answer(std::string(32, static_cast<char>(100 + good)));
  }
  for (v1::ConnectReply::Stream& stream : *reply.mutable_streams()) {
    if (const auto readable = net::parse_address(stream.address()); readable) {
      check_words(Error{ErrorCode::Internal, Reason::None, readable->to_string(), -1});
      stream.set_address(network().address.to_string());
    }
  }
  return reply;
}

class Answering {
 public:
  explicit Answering(const v1::ConnectReply& reply) : reply_(reply) {}

  void run(std::span<const Part> parts) {
    const Status opened = streams_.open(network().ports, kPeer, reply_);
    accept();
    if (!opened) {
      check_words(opened.error());
    } else {
      check_opened();
      bool goes_on = look();
      for (std::size_t i = 0; goes_on && i < parts.size(); ++i) {
        say(parts[i]);
        goes_on = look();
      }
    }
    for (Said& said : said_) said.end.end();
    streams_.drop();
  }

 private:
  struct Said {
    FarEnd end;
    std::uint32_t stream = 0;
    bool is_known = false;   // which stream it is
    bool was_right = false;  // it may stand
  };

  void check_opened() const {
    const auto count = static_cast<std::size_t>(reply_.streams_size());
    check(streams_.size() == count && streams_.rails().size() == count);
    std::set<std::uint32_t> numbers;
    for (const v1::ConnectReply::Stream& stream : reply_.streams()) {
      check(stream.key().size() == 32 && stream.answer().size() == 32);
      check(stream.stream() < count && numbers.insert(stream.stream()).second);
    }
  }
  void accept() {
    for (;;) {
      UniqueFd socket(::accept4(network().listener.get(), nullptr, nullptr, SOCK_NONBLOCK));
      if (!socket) return;
      said_.push_back({.end = FarEnd(std::move(socket))});
    }
  }
  // False: it has stood or failed.
  bool look() {
    const net::Progress stands = streams_.stand();
    if (stands == net::Progress::Failed) check_words(streams_.why());
    if (stands == net::Progress::Done) {
      check(said_.size() == streams_.size());
      check(std::ranges::all_of(said_, [](const Said& said) { return said.was_right; }));
      check(streams_.release().size() == said_.size());
    }
    if (stands != net::Progress::Again) return false;
    for (Said& said : said_) {
      if (!said.is_known) read_hello(said);
    }
    return true;
  }
  void read_hello(Said& said) {
    const std::string hello = said.end.hear(sizeof(net::HelloKey));
    if (hello.empty()) return;
    net::HelloKey key;
    check(payload_of(hello).size() == sizeof key);
    std::memcpy(&key, payload_of(hello).data(), sizeof key);
    const v1::ConnectReply::Stream* const stream = find(key.stream);
    check(stream != nullptr && key.rail == stream->rail() &&
          std::memcmp(key.key.data(), stream->key().data(), key.key.size()) == 0);
    said.stream = key.stream;
    said.is_known = true;
  }
  const v1::ConnectReply::Stream* find(std::uint32_t number) const {
    const auto found = std::ranges::find_if(
        reply_.streams(), [&](const auto& stream) { return stream.stream() == number; });
    return found == reply_.streams().end() ? nullptr : &*found;
  }
  void say(const Part& part) {
    const std::size_t which = part.what % kConnections;
    if (which >= said_.size() || !said_[which].is_known) return;
    Said& said = said_[which];
    const std::string& answer = find(said.stream)->answer();
    switch (static_cast<Saying>(part.what >> 3 & 3)) {
      case Saying::AsItIs:
        // A part of what is right may be among it.
        said.was_right = said.was_right || part.bytes.size() >= answer.size();
        return said.end.say(part.bytes);
      case Saying::Framed: {
        const auto kind = static_cast<net::FrameKind>(part.what >> 5);
        said.was_right =
            said.was_right || (kind == net::FrameKind::Welcome && part.bytes == answer);
        return said.end.say(frame(kind, part.bytes));
      }
      case Saying::Right:
        said.was_right = true;
        return said.end.say(frame(net::FrameKind::Welcome, answer));
      case Saying::End:
        return said.end.end();
    }
  }

  const v1::ConnectReply& reply_;
  LinkStreams streams_;
  std::vector<Said> said_;
};

// ---- we are connected to ----

v1::ConnectRequest request_of(const Part& part) {
  v1::ConnectRequest request;
  (void)request.ParseFromArray(part.bytes.data(), static_cast<int>(part.bytes.size()));
  if (part.what >> 5 != 0) {
    request.add_addresses("127.0.0.9");
    request.set_streams(part.what >> 5);
  }
  return request;
}

class Greeting {
 public:
  void run(const v1::ConnectRequest& request, std::span<const Part> parts) {
    const Result<v1::ConnectReply> reply =
        streams_.expect(network().ports, keys_, kLink, kSelf, kPeer, kConnections, request);
    if (!reply) {
      check_words(reply.error());
      check(keys_.size() == 0);
      return;
    }
    check(keys_.size() == streams_.size());
    for (const Part& part : parts) {
      say(part, *reply);
      hear(*reply);
    }
    for (FarEnd& end : ends_) end.end();
    hear(*reply);  // strangers that are half known go
    keys_.drop(kLink);
    check(keys_.size() == 0);
    streams_.drop();
  }

 private:
  FarEnd& end_of(std::size_t which, const v1::ConnectReply& reply) {
    while (ends_.size() <= which) {
      const auto& to = reply.streams(static_cast<int>(ends_.size()) % reply.streams_size());
      ends_.emplace_back(net::connect_from({.host = "127.0.0.3", .port = 0},
                                           net::parse_address(to.address()).value())
                             .value());
    }
    return ends_[which];
  }
  void say(const Part& part, const v1::ConnectReply& reply) {
    FarEnd& end = end_of(part.what % kConnections, reply);
    if (!end.is_there()) return;
    const std::size_t first = part.bytes.empty() ? 0 : static_cast<std::uint8_t>(part.bytes[0]);
    const auto& stream = reply.streams(static_cast<int>(first) % reply.streams_size());
    switch (static_cast<Saying>(part.what >> 3 & 3)) {
      case Saying::AsItIs:
        return end.say(part.bytes);
      case Saying::Framed:
        return end.say(frame(static_cast<net::FrameKind>(part.what >> 5), part.bytes));
      case Saying::Right: {
        net::HelloKey key{.key = {}, .stream = stream.stream(), .rail = stream.rail()};
        std::memcpy(key.key.data(), stream.key().data(), key.key.size());
        key.stream += part.what >> 7;  // or a little wrong
        if (key.stream == stream.stream()) shown_.insert(key.stream);
        return end.say(
            frame(net::FrameKind::Hello, {reinterpret_cast<const char*>(&key), sizeof key}));
      }
      case Saying::End:
        return end.end();
    }
  }
  void hear(const v1::ConnectReply& reply) {
    for (std::size_t at = 0; at < network().ports.interfaces().size(); ++at) {
      while (net::ConnectionPtr connection = network().ports.endpoint(at).accept(
                 [this](const net::HelloKey& shown) { return keys_.take(shown); })) {
        const std::optional<LinkKeys::Taken> whose = keys_.last();
        check(whose && whose->link == kLink);
        check(shown_.contains(whose->stream) && taken_.insert(whose->stream).second);
        const bool is_whole = streams_.take(whose->stream, std::move(connection));
        check(is_whole == (taken_.size() == static_cast<std::size_t>(reply.streams_size())));
      }
    }
    check(keys_.size() + taken_.size() == static_cast<std::size_t>(reply.streams_size()));
  }

  LinkKeys keys_;
  LinkStreams streams_;
  std::vector<FarEnd> ends_;
  std::set<std::uint32_t> shown_, taken_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<Part> parts = parts_of(data, size);
  if (parts.empty()) return 0;
  const std::span said = std::span(parts).subspan(1);
  if (parts.front().what % 2 == 0) {
    const v1::ConnectReply reply = reply_of(parts.front());
    Answering(reply).run(said);
  } else {
    Greeting().run(request_of(parts.front()), said);
  }
  return 0;
}

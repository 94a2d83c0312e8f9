// A daemon's peer that is broken or hostile, at two whole workers: its bytes come on the links'
// streams torn anywhere, frames are sealed or not, messages right or nearly right, and its
// connections close at any moment. Beside it the two workers run a communicator of their own, whose
// results must be right, and every call of a communicator that spans the peer must be answered.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fuzz/nodes/daemon.h"
#include "tests/fuzz/nodes/far_link.h"
#include "tests/fuzz/nodes/input.h"

namespace arcomm::fuzz {
namespace {

// What has to end does within this.
constexpr auto kPatience = std::chrono::seconds(4);

class Scene {
 public:
  Scene() {
    for (std::uint32_t i = 0; i < kDaemons; ++i) daemons_[i].emplace(i);
    link_daemons();
    for (std::size_t i = 0; i < kDaemons; ++i) far_[i].emplace(*daemons_[i], regions_[i]);
    for (auto& daemon : daemons_) daemon->form(kInnocent);
  }

  void run(std::span<Part> parts) {
    for (Part& part : parts) act(part);
    for (auto& far : far_) far->end();
    // What spans the peer ends with its links, and the innocent ones go on: both ranks call as
    // often.
    call(kInnocent, 3);
    for (std::size_t i = 0; i < kDaemons; ++i) {
      while (innocent(i).called() < innocent(1 - i).called()) innocent(i).call();
    }
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (std::ranges::any_of(daemons_, [](const auto& daemon) { return daemon->is_waiting(); })) {
      if (!turn()) std::this_thread::sleep_for(std::chrono::microseconds(20));
      check(std::chrono::steady_clock::now() < until);
    }
    for (bool are_over = false; !are_over;) {
      are_over = true;
      for (auto& daemon : daemons_) are_over &= daemon->shut_down();
      if (!are_over) std::this_thread::sleep_for(std::chrono::microseconds(20));
      check(std::chrono::steady_clock::now() < until);
    }
  }

 private:
  void link_daemons() {
    std::array<net::ConnectionPtr, kStreams> out, in;
    for (std::size_t i = 0; i < kStreams; ++i) {
      auto [one, other] = socket_pair();
      const int accepting = other.get();
      out[i] = net::TcpConnection::connecting(std::move(one), options_of(1, regions_[0]), {}, {});
      NoReceiver nobody;
      while (out[i]->progress(nobody) == net::Progress::Done) {
      }
      std::array<std::byte, sizeof(net::FrameHeader) + sizeof(net::HelloKey)> hello;
      check(::recv(accepting, hello.data(), hello.size(), 0) == ssize_t{hello.size()});
      in[i] = net::TcpConnection::accepted(std::move(other), options_of(0, regions_[1]), {});
      while (out[i]->is_open() != net::Progress::Done) {
        in[i]->progress(nobody);
        out[i]->progress(nobody);
      }
    }
    daemons_[0]->link(1, std::move(out[0]), std::move(out[1]), regions_[0]);
    daemons_[1]->link(0, std::move(in[0]), std::move(in[1]), regions_[1]);
  }

  struct NoReceiver final : net::Receiver {
    Result<std::byte*> place(const net::FrameHeader&) override { return nullptr; }
    Status arrived(const net::FrameHeader&, std::span<const std::byte>) override { return {}; }
    void abandoned(const net::FrameHeader&) override {}
  };

  bool turn() {
    bool worked = false;
    for (std::size_t i = 0; i < kDaemons; ++i) {
      worked |= daemons_[i]->turn();
      far_[i]->hear();
    }
    return worked;
  }
  Seat& innocent(std::size_t daemon) { return *daemons_[daemon]->seat(kInnocent); }
  void call(std::size_t shape, unsigned who) {
    for (std::size_t i = 0; i < kDaemons; ++i) {
      Seat* const seat = daemons_[i]->seat(shape);
      if ((who >> i & 1) != 0 && seat != nullptr && seat->may_call()) seat->call();
    }
  }

  void act(Part& part) {
    const auto which = static_cast<Act>(part.what & 7);
    FarLink& far = *far_[part.what >> 3 & 1];
    Stream& stream = far.stream(part.what >> 4 & 1);
    // Where the bytes are torn, and what comes in between; 0: nowhere.
    const std::size_t tear = part.what >> 5;
    switch (which) {
      case Act::Bytes:
        say(stream, std::as_bytes(std::span(part.bytes)), tear);
        break;
      case Act::Frame:
        say_frame(far, stream, part, tear);
        break;
      case Act::Message: {
        const auto kind = static_cast<net::MessageKind>(part.next());
        const Shape& shape = shape_of(part.next());
        const std::uint64_t seq = part.next();
        say_message(stream, kind, shape.number, seq, std::as_bytes(std::span(part.bytes)), tear);
        break;
      }
      case Act::Offer:
        say_offer(stream, part, tear);
        break;
      case Act::Window: {
        const Shape& shape = shape_of(part.next());
        const net::WindowBody body =
            spoilt(net::WindowBody{.region = 1, .slots = 16, .slot_bytes = 64 << 10}, part);
        say_message(stream, net::MessageKind::Window, shape.number, 0,
                    std::as_bytes(std::span(&body, 1)), tear);
        break;
      }
      case Act::Call: {
        const std::uint8_t how = part.next();
        call(how % kShapes.size(), how >> 2 & 3);
        for (unsigned left = how >> 4; left > 0; --left) turn();
        break;
      }
      case Act::End:
        if (stream.socket && tear != 0)
          (void)::shutdown(stream.socket.get(), tear % 2 == 0 ? SHUT_WR : SHUT_RD);
        if (tear == 0) stream.socket.reset();
        break;
      case Act::Control: {
        const std::size_t shape = 1 + part.next() % (kShapes.size() - 1);
        Daemon& daemon = *daemons_[part.what >> 3 & 1];
        tear < 5 ? daemon.form(shape) : daemon.leave(shape, tear == 7);
        break;
      }
    }
    if (part.what < 0xf0) turn();
  }

  const Shape& shape_of(std::uint8_t byte) const { return kShapes[byte % kShapes.size()]; }

  void say(Stream& stream, std::span<const std::byte> bytes, std::size_t tear) {
    const std::size_t first = std::min(bytes.size(), tear == 0 ? bytes.size() : tear * 17);
    stream.say(bytes.first(first));
    if (first == bytes.size()) return;
    turn();
    stream.say(bytes.subspan(first));
  }
  void say_sealed(Stream& stream, net::FrameHeader header, std::span<const std::byte> payload,
                  std::size_t tear) {
    header.number += stream.number++;
    net::seal(header, payload);
    std::vector<std::byte> bytes;
    append(bytes, header);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    say(stream, bytes, tear);
  }
  // A put or signal, mostly, into what this peer was told of.
  void say_frame(FarLink& far, Stream& stream, Part& part, std::size_t tear) {
    const Shape& shape = shape_of(part.next());
    const std::uint8_t how = part.next();
    const net::WindowBody window = far.window(shape.number);
    net::FrameHeader header{
        .kind = how % 2 == 0 ? net::FrameKind::Put : net::FrameKind::Signal,
        .communicator = shape.number,
        .epoch = 1,
        .offset = window.first_byte + std::uint64_t{window.slot_bytes} * (how >> 2 & 3),
        .region = how % 4 < 2 ? window.region : far.last_ready(),
        .signal = how % 2 == 0 ? window.first_signal + (how >> 2 & 3) : window.first_credit,
        .add = 1};
    const std::uint8_t long_of = part.next();  // in 256 bytes
    header = spoilt(header, part);
    std::vector<std::byte> payload(header.kind == net::FrameKind::Signal ? 0 : long_of * 256);
    const auto said = std::as_bytes(std::span(part.bytes));
    if (header.kind != net::FrameKind::Signal)
      payload.insert(payload.end(), said.begin(), said.end());
    const std::size_t most =
        header.kind == net::FrameKind::Put || header.kind == net::FrameKind::Chunk
            ? net::kMostChunkBytes
            : net::kMostMessageBytes;
    payload.resize(std::min(payload.size(), most));
    header.number = 0;
    say_sealed(stream, header, payload, tear);
  }
  void say_message(Stream& stream, net::MessageKind kind, std::uint64_t communicator,
                   std::uint64_t seq, std::span<const std::byte> body, std::size_t tear) {
    body = body.first(std::min(body.size(), net::kMostMessageBytes - sizeof(net::MessageHead)));
    std::vector<std::byte> payload;
    append(payload,
           net::MessageHead{.kind = kind, .bytes = static_cast<std::uint32_t>(body.size())});
    payload.insert(payload.end(), body.begin(), body.end());
    say_sealed(
        stream,
        {.kind = net::FrameKind::Message, .communicator = communicator, .epoch = 1, .seq = seq},
        payload, tear);
  }
  // As its rank's would be, with its data where they go with it.
  void say_offer(Stream& stream, Part& part, std::size_t tear) {
    const Shape& shape = shape_of(part.next());
    const std::uint8_t how = part.next();
    const std::uint64_t seq = how % kMostCalls, count = elements_of(seq);
    net::OfferBody offer = net::offer_of(all_reduce_of(count));
    const auto found = std::ranges::find(shape.nodes, std::uint32_t{kDaemons});
    offer.first_rank = static_cast<std::int32_t>(found - shape.nodes.begin());
    offer.total_count = count;
    offer.remaining_ns = std::uint64_t{10'000'000'000};
    const std::uint64_t bytes = count * sizeof(float);
    const bool has_data = how < 128 && bytes <= net::kMostInlineBytes;
    offer.inline_bytes = has_data ? static_cast<std::uint32_t>(bytes) : 0;
    offer = spoilt(offer, part);
    std::vector<std::byte> body;
    append(body, offer);
    if (has_data) body.resize(body.size() + bytes, std::byte{1});
    say_message(stream, net::MessageKind::Offer, shape.number, seq, body, tear);
  }

  std::array<std::shared_ptr<net::Regions>, kDaemons> regions_{std::make_shared<net::Regions>(),
                                                               std::make_shared<net::Regions>()};
  std::array<std::optional<FarLink>, kDaemons> far_;
  std::array<std::optional<Daemon>, kDaemons> daemons_;
};

}  // namespace
}  // namespace arcomm::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<arcomm::fuzz::Part> parts = arcomm::fuzz::parts_of(data, size);
  if (parts.empty()) return 0;
  arcomm::fuzz::Scene().run(parts);
  return 0;
}

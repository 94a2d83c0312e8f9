// A daemon's peer that is broken or hostile, at two whole workers: its bytes come on the links'
// streams torn anywhere, frames are sealed or not, messages right or nearly right, and its
// connections close at any moment. Beside it the two workers run a communicator of their own, whose
// results must be right, and every call of a communicator that spans the peer must be answered.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/exec/clock.h"
#include "daemon/exec/host/host_backend.h"
#include "daemon/exec/worker/control_requests.h"
#include "daemon/exec/worker/worker.h"
#include "daemon/plan/tuning/tuning_table.h"
#include "daemon/telemetry/flight_recorder.h"
#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "proto/ring/consumer.h"
#include "proto/ring/doorbell.h"
#include "proto/ring/producer.h"
#include "proto/ring/segment.h"
#include "transport/device/host/host_device.h"
#include "transport/net/sealing.h"
#include "transport/net/tcp/connection.h"

namespace {

using namespace arcomm;  // NOLINT(google-build-using-namespace)

constexpr std::size_t kDaemons = 2;             // whole ones; the peer is no. 2
constexpr std::size_t kStreams = 2;             // of a link: messages and bulk
constexpr std::uint64_t kMostCalls = 8;         // of a rank in its communicator
constexpr std::uint64_t kMostElements = 40000;  // of a call
constexpr std::uint64_t kPlaceBytes = kMostElements * sizeof(float);
constexpr PeerId kPeers[] = {0x1000, 0x1001, 0x1002};
constexpr const char* kNames[] = {"node-a", "node-b", "node-x"};
// What has to end does within this.
constexpr auto kPatience = std::chrono::seconds(4);

void check(bool holds) {
  if (!holds) __builtin_trap();
}

// ---- communicators ----

struct Shape {
  std::uint64_t number;
  std::vector<std::uint32_t> nodes;  // of daemons, one rank on each
};
const std::array<Shape, 4> kShapes{Shape{8, {0, 1}},     // the innocent one
                                   Shape{7, {0, 2}},     // with the peer
                                   Shape{9, {0, 1, 2}},  // all
                                   Shape{10, {2, 1}}};
constexpr std::size_t kInnocent = 0;

// Elements of a call, by which one it is: with the offer, and in chunks.
std::uint64_t elements_of(std::uint64_t seq) {
  constexpr std::uint64_t kCounts[] = {5, 3000, kMostElements};
  return kCounts[seq % std::size(kCounts)];
}
float element_of(std::size_t rank, std::uint64_t seq, std::uint64_t at) {
  return static_cast<float>((rank + 1) * (at % 1000 + seq + 1));  // sums are exact
}

// ---- a rank's process ----

class Seat {
 public:
  Seat(ControlRequests& control, SessionId id, std::size_t rank) : id_(id), rank_(rank) {
    ring::Segment segment = ring::Segment::create(ring::kMinSlots, id).value();
    mine_.emplace(ring::Segment::open(duplicate(segment.fd())).value());
    requests_.emplace(mine_->requests());
    completions_.emplace(mine_->completions());
    check(control
              .open_session({.id = id,
                             .peer = {.pid = 100, .uid = 1000, .gid = 1000},
                             .process_name = "client",
                             .segment = std::move(segment),
                             .doorbell = ring::EventDoorbell::create().value(),
                             .limits = {}},
                            now_ns())
              .ok());
    UniqueFd memory(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const std::size_t bytes = 2 * kMostCalls * kPlaceBytes;
    check(::ftruncate(memory.get(), static_cast<off_t>(bytes)) == 0 &&
          ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    void* const mapped =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    check(mapped != MAP_FAILED);
    memory_ = {static_cast<std::byte*>(mapped), bytes};
    BufferSpec spec{.memory = std::move(memory), .length_bytes = bytes};
    buffer_ = control.add_buffer(id, spec).value();
  }
  ~Seat() { ::munmap(memory_.data(), memory_.size()); }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  SessionId id() const { return id_; }
  void sit(MemberId member) { member_ = member; }
  std::optional<MemberId> member() const { return member_; }
  std::uint64_t called() const { return called_; }
  bool may_call() const { return member_ && called_ < kMostCalls; }
  std::uint64_t open_calls() const { return called_ - answered_; }

  void call() {
    const std::uint64_t seq = called_++, count = elements_of(seq);
    float* const send = place(seq, 0);
    for (std::uint64_t i = 0; i < count; ++i) send[i] = element_of(rank_, seq, i);
    ring::WorkRequest request;
    request.dtype = static_cast<std::uint8_t>(DType::Float32);
    request.op = static_cast<std::uint8_t>(ReduceOp::Sum);
    request.member = member_->bits();
    request.seq = seq;
    request.ticket = seq;
    request.send_buffer = request.recv_buffer = buffer_.bits();
    request.send_offset_bytes = offset(seq, 0);
    request.recv_offset_bytes = offset(seq, 1);
    request.send_count = request.recv_count = count;
    request.submitted_ns = now_ns();
    check(requests_->push(request) == ring::Push::Done);
  }
  // Each call is answered once. must_succeed: rightly, with the sum over so many ranks.
  void hear(bool must_succeed, std::size_t ranks) {
    ring::Completion completion;
    while (completions_->pop(completion) == ring::Pop::Done) {
      const std::uint64_t seq = completion.ticket;
      check(seq < called_ && !heard_[seq]);
      heard_[seq] = true;
      ++answered_;
      if (!must_succeed) continue;
      check(completion.code == static_cast<std::uint8_t>(ErrorCode::Ok));
      const float* const sum = place(seq, 1);
      for (std::uint64_t i = 0; i < elements_of(seq); ++i) {
        float expected = 0;
        for (std::size_t rank = 0; rank < ranks; ++rank) expected += element_of(rank, seq, i);
        check(sum[i] == expected);
      }
    }
  }

 private:
  static std::uint64_t offset(std::uint64_t seq, std::uint64_t half) {
    return (2 * seq + half) * kPlaceBytes;
  }
  float* place(std::uint64_t seq, std::uint64_t half) {
    return reinterpret_cast<float*>(memory_.data() + offset(seq, half));
  }

  const SessionId id_;
  const std::size_t rank_;
  std::optional<ring::Segment> mine_;
  std::optional<ring::Producer<ring::WorkRequest>> requests_;
  std::optional<ring::Consumer<ring::Completion>> completions_;
  std::span<std::byte> memory_;
  BufferId buffer_;
  std::optional<MemberId> member_;
  std::uint64_t called_ = 0, answered_ = 0;
  std::array<bool, kMostCalls> heard_{};
};

// ---- a daemon: its worker, and its clients ----

struct Shared {
  Shared() { log::set_level(LogLevel::Error); }
  std::unique_ptr<HostDevice> device = HostDevice::create({}).value();
  std::unique_ptr<FlightRecorder> recorder = FlightRecorder::create(1024, 1024).value();
  Metrics metrics;
  // Little, as each input takes it anew: what all communicators here need.
  std::shared_ptr<Settings> settings = [] {
    auto made = std::make_shared<Settings>();
    made->net.staging_bytes = std::uint64_t{10} << 20;
    return made;
  }();
  std::shared_ptr<TuningTable> tuning = std::make_shared<TuningTable>(default_tuning());
};

Shared& shared() {
  static Shared one;
  return one;
}

class Daemon {
 public:
  explicit Daemon(std::uint32_t index) : index_(index) {
    Shared& all = shared();
    worker_ =
        Worker::create(
            {.device = all.device->name(),
             .open_backend = [&all](const BackendParts& parts) -> Result<std::unique_ptr<Backend>> {
               auto host = HostBackend::create(*all.device, 1, parts.buffers, parts.tuning,
                                               {.bytes = all.settings->net.staging_bytes});
               if (!host) return std::move(host).error();
               return std::unique_ptr<Backend>(std::move(host).value());
             },
             .recorder = *all.recorder,
             .metrics = all.metrics,
             .settings = all.settings,
             .tuning = all.tuning,
             .events = {}})
            .value();
    control_.emplace(*worker_);
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      const auto& nodes = kShapes[i].nodes;
      const auto here = std::ranges::find(nodes, index);
      if (here == nodes.end()) continue;
      seats_[i] = std::make_unique<Seat>(*control_, SessionId{static_cast<std::uint32_t>(i), 1},
                                         here - nodes.begin());
    }
  }

  Seat* seat(std::size_t shape) { return seats_[shape].get(); }

  void link(std::uint32_t other, net::ConnectionPtr messages, net::ConnectionPtr bulk,
            std::shared_ptr<net::Regions> regions) {
    LinkSpec spec{.peer = kPeers[other],
                  .name = kNames[other],
                  .messages = std::move(messages),
                  .bulk = {},
                  .bulk_options = {},
                  .regions = std::move(regions)};
    spec.bulk.push_back(std::move(bulk));  // without options: the worker drives it
    check(worker_->state().nodes.open_link(std::move(spec)).ok());
  }
  // Not where the link to a peer has gone, or what came early was too much.
  void form(std::size_t index) {
    Seat* const one = seat(index);
    if (one == nullptr || one->member()) return;
    const Shape& shape = kShapes[index];
    CommunicatorSpec spec;
    spec.unique_id.fill(static_cast<std::byte>(shape.number));
    spec.communicator = shape.number;
    for (std::uint32_t rank = 0; rank < shape.nodes.size(); ++rank) {
      spec.node_of_rank.push_back(rank);
      spec.nodes.push_back({.peer = kPeers[shape.nodes[rank]], .name = kNames[shape.nodes[rank]]});
      if (shape.nodes[rank] != index_) continue;
      spec.here = rank;
      spec.ranks = {{one->id(), static_cast<Rank>(rank)}};
    }
    std::unique_ptr<CommunicatorExtension> made;
    const auto formed = control_->form_communicator(spec, made);
    check(formed.ok() || index != kInnocent);
    if (formed) one->sit((*formed)->front());
  }
  void leave(std::size_t index, bool aborts) {
    Seat* const one = seat(index);
    if (one == nullptr || !one->member()) return;
    const auto nobody = [](const Result<void>&) {};
    aborts ? control_->abort_communicator(one->id(), *one->member(), "enough", nobody)
           : control_->leave_communicator(one->id(), *one->member(), nobody);
  }

  bool turn() {
    const std::uint64_t now = now_ns();
    worker_->state().backend->begin_turn();
    bool worked = worker_->poll_sessions();
    worked |= worker_->look_at_nodes(now);
    worker_->sweep_deadlines(now);
    worked |= worker_->settle();
    worked |= worker_->execute();
    worked |= worker_->reap();
    worked |= worker_->settle();
    for (std::size_t i = 0; i < seats_.size(); ++i) {
      if (seats_[i] != nullptr) seats_[i]->hear(i == kInnocent, kShapes[i].nodes.size());
    }
    return worked;
  }
  bool is_waiting() const {
    return std::ranges::any_of(
        seats_, [](const auto& one) { return one != nullptr && one->open_calls() != 0; });
  }
  bool shut_down() { return worker_->shut_down(); }

 private:
  const std::uint32_t index_;
  std::array<std::unique_ptr<Seat>, kShapes.size()> seats_;
  std::unique_ptr<Worker> worker_;
  std::optional<ControlRequests> control_;
};

// ---- the peer ----

std::pair<UniqueFd, UniqueFd> socket_pair() {
  std::array<int, 2> ends{};
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

net::TcpConnection::Options options_of(std::size_t other, std::shared_ptr<net::Regions> regions) {
  using std::chrono::seconds;
  return {.name = kNames[other],
          .regions = std::move(regions),
          .greeting_timeout = seconds(10),
          .peer_timeout = seconds(10)};
}

// Its end of one stream.
struct Stream {
  UniqueFd socket;
  std::uint64_t number = 1;  // of the next frame that it sends
  std::vector<std::byte> heard;

  void say(std::span<const std::byte> bytes) {
    if (socket) (void)::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
};

// Its end of a link, and what it has learnt there.
class FarLink {
 public:
  FarLink(Daemon& daemon, std::shared_ptr<net::Regions> regions) {
    std::array<net::ConnectionPtr, kStreams> theirs;
    for (std::size_t i = 0; i < kStreams; ++i) {
      auto [mine, its] = socket_pair();
      streams_[i].socket = std::move(mine);
      theirs[i] = net::TcpConnection::accepted(std::move(its), options_of(kDaemons, regions), {});
    }
    daemon.link(kDaemons, std::move(theirs[0]), std::move(theirs[1]), std::move(regions));
  }

  Stream& stream(std::size_t which) { return streams_[which]; }
  net::WindowBody window(std::uint64_t number) const {
    const auto found = std::ranges::find(windows_, number, [](const auto& w) { return w.first; });
    return found == windows_.end() ? net::WindowBody{} : found->second;
  }
  std::uint64_t last_ready() const { return last_ready_; }
  void end() {
    for (Stream& stream : streams_) stream.socket.reset();
  }
  // Reads what has come, as a peer would: where its data may go stands in it.
  void hear() {
    for (Stream& stream : streams_) {
      std::array<std::byte, 16384> part;
      for (ssize_t got = 1; stream.socket && got > 0;) {
        got = ::recv(stream.socket.get(), part.data(), part.size(), 0);
        if (got > 0) stream.heard.insert(stream.heard.end(), part.begin(), part.begin() + got);
      }
      take_frames(stream.heard);
    }
  }

 private:
  void take_frames(std::vector<std::byte>& heard) {
    std::size_t at = 0;
    while (heard.size() - at >= sizeof(net::FrameHeader)) {
      net::FrameHeader header;
      std::memcpy(&header, heard.data() + at, sizeof header);
      check(net::check_header(header).ok());
      const std::size_t bytes = sizeof header + header.length;
      if (heard.size() - at < bytes) break;
      const auto payload = std::span(heard).subspan(at + sizeof header, header.length);
      check(net::check_payload(header, payload).ok());
      if (header.kind == net::FrameKind::Message) note(header, payload);
      at += bytes;
    }
    heard.erase(heard.begin(), heard.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void note(const net::FrameHeader& header, std::span<const std::byte> payload) {
    const Result<net::Message> message = net::read_message(payload);
    check(message.ok());
    if (message->kind == net::MessageKind::Window)
      windows_.emplace_back(header.communicator, net::body_of<net::WindowBody>(message->body));
    if (message->kind == net::MessageKind::Ready)
      last_ready_ = net::body_of<net::ReadyBody>(message->body).region;
  }

  std::array<Stream, kStreams> streams_;
  std::vector<std::pair<std::uint64_t, net::WindowBody>> windows_;
  std::uint64_t last_ready_ = 0;
};

// ---- what the input says ----

// A byte that says what and where, and bytes.
struct Part {
  std::uint8_t what = 0;
  std::string_view bytes;
  // The next byte of it; 0 behind its end.
  std::uint8_t next() {
    if (bytes.empty()) return 0;
    const auto byte = static_cast<std::uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    return byte;
  }
};
enum class Act : std::uint8_t { Bytes, Frame, Message, Offer, Window, Call, End, Control };

std::vector<Part> parts_of(const std::uint8_t* data, std::size_t size) {
  std::vector<Part> parts;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  for (std::size_t at = 0; at + 3 <= size && parts.size() < 48;) {
    const std::size_t length =
        std::min<std::size_t>(data[at + 1] + 256u * data[at + 2], size - at - 3);
    parts.push_back({data[at], all.substr(at + 3, length)});
    at += 3 + length;
  }
  return parts;
}

template <typename T>
void append(std::vector<std::byte>& bytes, const T& value) {
  const auto its = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), its.begin(), its.end());
}
// The value with the input's bytes over it, as far as they go.
template <typename T>
T spoilt(T value, Part& part) {
  const std::size_t most = std::min(part.bytes.size(), sizeof value);
  for (std::size_t i = 0; i < most; ++i) {
    // 0 leaves as it is: what is nearly right is more likely to come far.
    reinterpret_cast<unsigned char*>(&value)[i] ^= static_cast<unsigned char>(part.bytes[i]);
  }
  part.bytes.remove_prefix(most);
  return value;
}

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

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<Part> parts = parts_of(data, size);
  if (parts.empty()) return 0;
  Scene().run(parts);
  return 0;
}

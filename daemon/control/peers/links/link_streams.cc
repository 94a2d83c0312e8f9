#include "daemon/control/peers/links/link_streams.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "proto/text.h"
#include "transport/net/addresses/subnet.h"
#include "transport/net/rails.h"

namespace arcomm {
namespace {

constexpr std::size_t kMostStreams = 65;
constexpr std::size_t kMostAddresses = 64;

// Nothing is received before the connections' owner has them.
class NoRoom final : public net::Receiver {
 public:
  Result<std::byte*> place(const net::FrameHeader&) override {
    return static_cast<std::byte*>(nullptr);
  }
  Status arrived(const net::FrameHeader&, std::span<const std::byte>) override { return {}; }
  void abandoned(const net::FrameHeader&) override {}
};

bool read_secret(const std::string& bytes, net::Secret& secret) {
  if (bytes.size() != secret.size()) return false;
  std::memcpy(secret.data(), bytes.data(), secret.size());
  return true;
}

std::string text_of_secret(const net::Secret& secret) {
  return {reinterpret_cast<const char*>(secret.data()), secret.size()};
}

Result<std::vector<net::FarInterface>> read_interfaces(const v1::ConnectRequest& request) {
  const int most = request.addresses_size();
  if (most == 0 || most > static_cast<int>(kMostAddresses))
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "a link takes 1 to ", kMostAddresses,
                 " addresses, and there are ", most);
  std::vector<net::FarInterface> there;
  for (int i = 0; i < most; ++i) {
    if (!net::ip_family(request.addresses(i)))
      return error(ErrorCode::InvalidArgument, Reason::BadValue, "\"",
                   safe_text(request.addresses(i), 64), "\" is no address");
    there.push_back({request.addresses(i),
                     i < request.speeds_mbits_size() ? request.speeds_mbits(i) : std::uint32_t{0}});
  }
  return there;
}

}  // namespace

void LinkStreams::describe(const DataPorts& ports, std::size_t streams,
                           v1::ConnectRequest& request) {
  request.set_streams(static_cast<std::uint32_t>(streams));
  for (const net::Interface& one : ports.interfaces()) {
    request.add_addresses(one.host);
    request.add_speeds_mbits(one.speed_mbits);
  }
}

Status LinkStreams::open(DataPorts& ports, const PeerNode& peer, const v1::ConnectReply& reply) {
  // None: the peer has closed its ports, or is no daemon of ours.
  const auto most = static_cast<std::size_t>(reply.streams_size());
  if (most == 0 || most > kMostStreams) {
    return error(ErrorCode::Internal, Reason::BadValue, peer.to_string(), " offers ", most,
                 " streams");
  }
  open_.clear();
  open_.resize(most);
  rails_.assign(most, 0);
  for (const v1::ConnectReply::Stream& stream : reply.streams())
    ARC_RETURN_IF_ERROR(open(ports, peer, stream));
  return {};
}

Status LinkStreams::open(DataPorts& ports, const PeerNode& peer,
                         const v1::ConnectReply::Stream& stream) {
  net::HelloKey key{.key = {}, .stream = stream.stream(), .rail = stream.rail()};
  net::Secret answer;
  if (stream.stream() >= open_.size() || open_[stream.stream()] != nullptr ||
      !read_secret(stream.key(), key.key) || !read_secret(stream.answer(), answer)) {
    return error(ErrorCode::Internal, Reason::BadValue, peer.to_string(),
                 " offers a stream that is none: ", stream.stream());
  }
  const Result<net::Address> address = net::parse_address(stream.address());
  if (!address) return address.error();
  const std::size_t from = net::far_end_of(stream.rail(), ports.interfaces().size());
  Result<net::ConnectionPtr> connection = ports.endpoint(from).connect(
      *address, peer.name.empty() ? peer.address : peer.name, key, answer);
  if (!connection) return std::move(connection).error();
  open_[stream.stream()] = *std::move(connection);
  rails_[stream.stream()] = stream.rail();
  return {};
}

net::Progress LinkStreams::stand() {
  NoRoom nothing;
  bool all = true;
  for (const net::ConnectionPtr& stream : open_) {
    while (stream->is_open() == net::Progress::Again &&
           stream->progress(nothing) == net::Progress::Done) {
    }
    const net::Progress open = stream->is_open();
    if (open == net::Progress::Failed) {
      why_ = stream->error();
      return open;
    }
    all = all && open == net::Progress::Done;
  }
  return all ? net::Progress::Done : net::Progress::Again;
}

Result<v1::ConnectReply> LinkStreams::expect(DataPorts& ports, LinkKeys& keys, const LinkName& name,
                                             const PeerNode& self, const PeerNode& peer,
                                             std::size_t streams,
                                             const v1::ConnectRequest& request) {
  const Result<std::vector<net::FarInterface>> there = read_interfaces(request);
  if (!there) return there.error();
  const std::vector<net::Rail> rails = net::pair_rails(ports.interfaces(), *there);
  if (rails.empty()) {
    return error(ErrorCode::FailedPrecondition, Reason::BadConfig, peer.to_string(), " and ",
                 self.to_string(),
                 " have no interfaces of one family for data: see net.interfaces and arctl net");
  }
  const std::size_t most = 1 + std::min<std::size_t>(streams, request.streams());
  const std::vector<std::size_t> rail_of = net::deal_streams(rails, most);
  v1::ConnectReply reply;
  open_.clear();
  open_.resize(most);
  rails_.clear();
  for (std::size_t i = 0; i < most; ++i) {
    const net::Rail& rail = rails[rail_of[i]];
    const Result<LinkKeys::Made> made =
        keys.make(name, static_cast<std::uint32_t>(i), peer.to_string());
    if (!made) {
      keys.drop(name);
      return made.error();
    }
    v1::ConnectReply::Stream& stream = *reply.add_streams();
    stream.set_address(ports.endpoint(rail.here).address().to_string());
    stream.set_stream(static_cast<std::uint32_t>(i));
    stream.set_rail(rail.number);
    stream.set_key(text_of_secret(made->key));
    stream.set_answer(text_of_secret(made->answer));
    rails_.push_back(rail.number);
  }
  return reply;
}

bool LinkStreams::take(std::uint32_t stream, net::ConnectionPtr connection) {
  if (stream >= open_.size()) return false;
  // The welcome leaves.
  NoRoom nothing;
  (void)connection->progress(nothing);
  open_[stream] = std::move(connection);
  return std::all_of(open_.begin(), open_.end(),
                     [](const net::ConnectionPtr& one) { return one != nullptr; });
}

std::vector<net::ConnectionPtr> LinkStreams::release() {
  return std::exchange(open_, {});
}

}  // namespace arcomm

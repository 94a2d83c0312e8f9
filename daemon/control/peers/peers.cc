#include "daemon/control/peers/peers.h"

#include <netdb.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <thread>
#include <utility>

#include "daemon/control/peers/peer_addresses.h"
#include "daemon/telemetry/log/log.h"
#include "proto/text.h"
#include "transport/net/addresses/subnet.h"
#include "transport/net/tcp/socket.h"
#include "transport/topology/topology.h"

namespace arcomm {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostPemBytes = 1 << 20;
constexpr std::size_t kUsualStreams = 8;
constexpr unsigned kCoresForThreads = 4;
constexpr milliseconds kLookForInterfaces{5000};  // again, where there was none
constexpr milliseconds kLongestGoodbye{500};      // a peer that does not hear it finds it out
// Lines about daemons that are refused.
constexpr milliseconds kBetweenLines{1000}, kBetweenSameLines{60'000};

PeerId new_instance() {
  PeerId instance = 0;
  while (instance == 0) {
    if (::getrandom(&instance, sizeof instance, 0) != sizeof instance)
      instance = EventLoop::now_ns();
  }
  return instance;
}

std::optional<net::Address> wanted_listen(const Settings::Net& net) {
  if (net.listen.empty()) return std::nullopt;
  const Result<net::Address> address = net::parse_address(net.listen);
  return address ? std::optional(*address) : std::nullopt;
}

std::vector<net::Interface> interfaces_here() {
  const Result<std::vector<net::Interface>> all = net::interfaces_of_machine();
  return all ? *all : std::vector<net::Interface>();
}

// Where the workers of clients and daemon fill the cores, a thread more only takes turns with them:
// 64 KB between two daemons on 2 cores take 170 us without, and 450 us with.
bool streams_have_threads(const Settings::Net& net) {
  return net.streams != 0 || std::thread::hardware_concurrency() >= kCoresForThreads;
}

std::size_t streams_of(const Settings::Net& net) {
  if (net.streams != 0) return net.streams;
  const std::size_t half = std::max(2u, std::thread::hardware_concurrency()) / 2;
  return std::min(kUsualStreams, half);
}

bool has_names(const std::vector<std::string>& configured) {
  return std::any_of(configured.begin(), configured.end(), [](const std::string& address) {
    return !net::ip_family(split_peer(address).host).has_value();
  });
}

// Its addresses; none for a name that nobody knows.
std::vector<std::string> look_up(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {};
  std::vector<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) == 0)
      addresses.emplace_back(text.data());
  }
  ::freeaddrinfo(found);
  return addresses;
}

}  // namespace

Result<std::unique_ptr<Peers>> Peers::create(Parts parts) {
  std::unique_ptr<Peers> self(new Peers(std::move(parts)));
  ARC_RETURN_IF_ERROR(self->read_secrets());
  const std::vector<std::string> configured = split_list(self->parts_.settings->net.peers);
  ARC_RETURN_IF_ERROR(self->listen(configured));
  self->client_ = std::make_unique<PeerClient>(*self->parts_.loop, self->tls_);
  self->make_table(configured);
  self->make_links();
  ARC_RETURN_IF_ERROR(self->start_server());
  std::vector<std::string> hosts;
  for (const std::string& address : configured) hosts.push_back(split_peer(address).host);
  if (has_names(configured)) {
    self->look_up_hosts(hosts);
  } else {
    self->open_data_ports(hosts);
  }
  self->parts_.loop->post([table = self->table_.get()] { table->start(); });
  return self;
}

Peers::~Peers() {
  if (server_) server_->stop();
}

Status Peers::read_secrets() {
  const Settings::Net& net = parts_.settings->net;
  Result<PeerToken> token = PeerToken::read(net.token_file);
  if (!token) return std::move(token).error();
  token_ = std::make_unique<PeerToken>(*std::move(token));
  if (net.tls_ca.empty()) return {};
  Result<std::string> certificate = read_small_file(net.tls_cert, "net.tls_cert", kMostPemBytes);
  if (!certificate) return std::move(certificate).error();
  Result<std::string> key = read_secret_file(net.tls_key, "net.tls_key", kMostPemBytes);
  if (!key) return std::move(key).error();
  Result<std::string> authority = read_small_file(net.tls_ca, "net.tls_ca", kMostPemBytes);
  if (!authority) return std::move(authority).error();
  // Without an authority everybody would be let in.
  for (const auto& [text, setting] : {std::pair(&*certificate, "net.tls_cert"),
                                      {&*key, "net.tls_key"},
                                      {&*authority, "net.tls_ca"}}) {
    if (text->empty())
      return error(ErrorCode::InvalidArgument, Reason::BadConfig, setting, " names an empty file");
  }
  tls_ = {*std::move(certificate), *std::move(key), *std::move(authority)};
  return {};
}

Status Peers::listen(const std::vector<std::string>& configured) {
  const std::optional<net::Address> wanted = wanted_listen(parts_.settings->net);
  listen_ = listen_address(wanted, configured, interfaces_here());
  if (tls_.is_on()) {
    listens_on_ = listen_.to_string();
    return {};
  }
  Result<UniqueFd> listener = net::listen_on(listen_);
  if (!listener && !wanted) {  // a machine without IPv6
    listen_.host = "0.0.0.0";
    listener = net::listen_on(listen_);
  }
  if (!listener) {
    Error why = std::move(listener).error();
    why.message = "other daemons cannot be listened for (net.listen): " + why.message;
    return why;
  }
  const Result<net::Address> address = net::address_of(listener->get());
  if (!address) return address.error();
  listen_ = *address;
  listener_ = *std::move(listener);
  listens_on_ = listen_.to_string();
  return {};
}

void Peers::make_table(const std::vector<std::string>& configured) {
  const Settings::Net& net = parts_.settings->net;
  const bool is_anywhere = net::is_any_address(listen_.host);
  const std::string name = net.name.empty() ? own_host_name() : net.name;
  std::string own = find_own(configured, listen_, interfaces_here());
  // Where an address is listened on and only addresses are in the list, nothing else can be meant.
  if (own.empty() && !is_anywhere && !has_names(configured)) own = listen_.to_string();
  table_ = std::make_unique<PeerTable>(PeerTable::Parts{
      .loop = *parts_.loop,
      .metrics = parts_.metrics,
      .client = *client_,
      .token = *token_,
      .configured = configured,
      .name = safe_text(name, 63),
      .instance = new_instance(),
      .own_address = std::move(own),
      .fallback_address =
          is_anywhere ? own_host_name() + ":" + std::to_string(listen_.port) : listen_.to_string(),
      .timeout = milliseconds(net.peer_timeout_ms),
      .lost = [this](const PeerNode& peer, const Error& why) { links_->close(peer, why); }});
}

void Peers::make_links() {
  const Settings& settings = *parts_.settings;
  links_ = std::make_unique<PeerLinks>(
      PeerLinks::Parts{.loop = *parts_.loop,
                       .metrics = parts_.metrics,
                       .table = *table_,
                       .workers = parts_.workers,
                       .data_port = static_cast<std::uint16_t>(settings.net.data_port),
                       .streams = streams_of(settings.net),
                       .have_threads = streams_have_threads(settings.net),
                       .cpus = core_list(settings.net.cpus),
                       .spin = std::chrono::microseconds(settings.wait.spin_us),
                       .peer_timeout = milliseconds(settings.net.peer_timeout_ms)});
}

Status Peers::start_server() {
  calls_ = std::make_unique<PeerCalls>(PeerCalls::Parts{
      .token = *token_,
      .self = [this]() -> const PeerNode& { return table_->self(); },
      .proven =
          [this](ConnectionNumber connection, const PeerNode& node, std::uint64_t losses) {
            if (gate_) gate_->trust(connection);
            table_->introduced(node, losses);
            return table_->losses_of(node);
          },
      .refused = [this](const Error& why) { tell_refused(why); },
      .left = [this](const PeerNode& node) { table_->left(node); },
      .connect =
          [this](const PeerNode& from, const v1::ConnectRequest& request,
                 const Answer<v1::ConnectReply>& answer) {
            links_->connect(from, request, answer);
          },
      .handler = [this] { return table_->handler(); }});
  if (!tls_.is_on()) {
    gate_ = std::make_unique<PeerGate>(PeerGate::Parts{
        .loop = *parts_.loop,
        .closer = parts_.closer,
        .adopt_rpc = [this](UniqueFd fd) { server_->adopt(std::move(fd)); },
        .ended = [this](ConnectionNumber connection) { calls_->ended(connection); }});
  }
  Result<std::unique_ptr<PeerServer>> server = PeerServer::start(
      {.loop = *parts_.loop,
       .metrics = parts_.metrics,
       .calls = *calls_,
       .find_caller = [this](const std::string& peer) { return gate_->find(peer); },
       .tls = tls_,
       .listen = listens_on_});
  if (!server) return std::move(server).error();
  server_ = *std::move(server);
  if (gate_) return gate_->open(std::move(listener_));
  return {};
}

void Peers::open_data_ports(const std::vector<std::string>& hosts) {
  const auto chosen = net::choose_interfaces(
      {.list = parts_.settings->net.interfaces,
       .peers = hosts,
       .own_host = net::is_any_address(listen_.host) ? std::string() : listen_.host});
  Status status;
  if (!chosen) {
    status = chosen.error();
  } else {
    status = links_->ports().open(*chosen);
  }
  if (status) return;
  log::error("no data can be exchanged with other daemons: {}; trying again in {} ms",
             status.error().message, kLookForInterfaces.count());
  parts_.loop->after(kLookForInterfaces, [this, hosts, reachable = reachable_] {
    if (*reachable != nullptr) open_data_ports(hosts);
  });
}

// A name service may hang: neither the loop nor the end of the daemon waits for it.
void Peers::look_up_hosts(std::vector<std::string> hosts) {
  try {
    std::thread([loop = parts_.loop, hosts = std::move(hosts), reachable = reachable_] {
      std::vector<std::string> addresses;
      for (const std::string& host : hosts) {
        if (net::ip_family(host)) {
          addresses.push_back(host);
          continue;
        }
        for (std::string& one : look_up(host)) addresses.push_back(std::move(one));
      }
      loop->post([addresses, reachable] {
        if (*reachable != nullptr) (*reachable)->open_data_ports(addresses);
      });
    }).detach();
  } catch (const std::system_error& failure) {
    log::error("no thread to look up net.peers on: {}", failure.what());
  }
}

void Peers::tell_refused(const Error& why) {
  ++refused_;
  const auto now = EventLoop::Clock::now();
  const bool is_news = last_refused_.message != why.message && now >= next_line_;
  last_refused_ = why;
  if (!is_news && now < next_line_ + kBetweenSameLines) return;
  next_line_ = now + kBetweenLines;
  log::warn("a daemon was refused: {}", why.message);
}

std::uint64_t Peers::turned_away() const {
  return (gate_ ? gate_->turned_away() : 0) + links_->ports().refused();
}

void Peers::begin_stop(const std::function<void()>& told) {
  if (gate_) gate_->close_listener();
  calls_->begin_stop();
  table_->leave(EventLoop::Clock::now() + kLongestGoodbye, told);
}

void Peers::close() {
  *reachable_ = nullptr;
  links_->stop();
  if (gate_) gate_->close();
}

}  // namespace arcomm

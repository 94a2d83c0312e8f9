#include "daemon/control/peers/links/peer_links.h"

#include <utility>

#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "proto/text.h"

namespace arcomm {
namespace {

using std::chrono::milliseconds;

// TCP's first segments, should they be lost, are sent again after 1, 3 and 7 s (RFC 6298, 2
// and 5.5).
constexpr milliseconds kAttemptLimit{10'000};
constexpr milliseconds kRetry{200};
// A side that only waits to be connected to says so, should the other one believe that the link
// stands.
constexpr milliseconds kReminder{300};
constexpr milliseconds kLookAtConnections{1};

}  // namespace

PeerLinks::PeerLinks(Parts parts)
    : parts_(std::move(parts)),
      replies_(parts_.loop),
      ports_(
          {.loop = parts_.loop,
           .port = parts_.data_port,
           .peer_timeout = parts_.peer_timeout,
           .check_key = [this](const net::HelloKey& shown) { return keys_.take(shown); },
           .accepted =
               [this](net::ConnectionPtr connection) { take_connection(std::move(connection)); }}),
      traffic_(parts_.loop, parts_.metrics, parts_.workers),
      probes_({.loop = parts_.loop,
               .table = parts_.table,
               .ports = ports_,
               .keys = keys_,
               .streams = parts_.streams,
               .spin = parts_.spin}) {}

void PeerLinks::stop() {
  probes_.stop();
  ports_.close();
  for (auto& [name, link] : links_) {
    finish_waiters(
        link, error(ErrorCode::Unavailable, Reason::ShuttingDown, "the daemon is shutting down"));
    drop_attempt(link);
  }
}

Result<std::size_t> PeerLinks::find_worker(const std::string& name) const {
  std::string known;
  for (std::size_t i = 0; i < parts_.workers.size(); ++i) {
    if (parts_.workers[i].device == name) return i;
    known += (known.empty() ? "" : ", ") + parts_.workers[i].device;
  }
  return error(ErrorCode::NotFound, Reason::BadValue, parts_.table.self().to_string(),
               " has no worker \"", safe_text(name, 64), "\"; there is ", known);
}

PeerLinks::Link& PeerLinks::link_to(const PeerNode& peer, std::size_t worker) {
  Link& link = links_[{peer.instance, worker}];
  link.peer = peer;
  link.worker = worker;
  return link;
}

bool PeerLinks::connects_to(const PeerNode& peer) const {
  return parts_.table.self().address < peer.address;
}

void PeerLinks::enter(Link& link, State state) {
  parts_.metrics.links.add((state == State::Up) - (link.state == State::Up));
  link.state = state;
  link.since = Clock::now();
}

void PeerLinks::ensure(const PeerNode& peer, const std::string& worker, Clock::time_point deadline,
                       Done done) {
  const Result<std::size_t> index = find_worker(worker);
  Status status;
  if (!index) {
    status = index.error();
  } else if (peer.instance == parts_.table.self().instance) {
    status = error(ErrorCode::InvalidArgument, Reason::Bug, "a daemon has no link to itself");
  }
  if (!status || link_to(peer, *index).state == State::Up) {
    parts_.loop.post([done = std::move(done), status] { done(status); });
    return;
  }
  Link& link = link_to(peer, *index);
  const auto waiter = link.waiters.insert(link.waiters.end(), Link::Waiter{std::move(done), {}});
  waiter->timer = parts_.loop.at(deadline, [&link, waiter] {
    const Done late = std::move(waiter->done);
    link.waiters.erase(waiter);
    late(error(ErrorCode::DeadlineExceeded, Reason::Timeout, "the link to ", link.peer.to_string(),
               " did not stand in time",
               link.why.message.empty() ? std::string() : ": " + link.why.message));
  });
  // A reminder that is due is not put off by waiters that come later.
  const bool is_reminding = link.waiters.size() > 1 && !connects_to(peer);
  if (link.state == State::Down && !is_reminding) begin(link);
}

void PeerLinks::begin(Link& link) {
  parts_.loop.cancel(link.retry);
  if (connects_to(link.peer)) return ask_for_keys(link);
  const LinkName name = name_of(link);
  link.retry = parts_.loop.after(kReminder, [this, name] {
    const auto found = links_.find(name);
    if (found == links_.end() || found->second.state != State::Down) return;
    if (!found->second.waiters.empty()) ask_to_connect(found->second);
  });
}

void PeerLinks::ask_to_connect(Link& link) {
  v1::ConnectRequest request;
  request.set_worker(parts_.workers[link.worker].device);
  request.set_attempt(link.attempt_there);
  if (Peer* const peer = parts_.table.find_peer(link.peer.address); peer != nullptr) {
    peer->send<v1::ConnectRequest, v1::ConnectReply>(
        &PeerClient::Stub::PrepareAsyncConnect, std::move(request), link.peer.instance,
        Clock::now() + kAttemptLimit, false,
        [this, name = name_of(link)](const Result<v1::ConnectReply>& reply) {
          const auto found = links_.find(name);
          if (!reply && found != links_.end()) found->second.why = reply.error();
        });
  }
  begin(link);  // and again
}

void PeerLinks::ask_for_keys(Link& link) {
  if (!ports_.is_open()) {
    return fail_attempt(
        link, error(ErrorCode::Unavailable, Reason::None, "this daemon's data ports are not open"));
  }
  Peer* const peer = parts_.table.find_peer(link.peer.address);
  if (peer == nullptr) {
    return fail_attempt(link, error(ErrorCode::NotFound, Reason::None, "no daemon is known at ",
                                    link.peer.address));
  }
  enter(link, State::Asking);
  const std::uint64_t attempt = link.attempt = ++last_attempt_;
  v1::ConnectRequest request;
  request.set_worker(parts_.workers[link.worker].device);
  request.set_attempt(attempt);
  LinkStreams::describe(ports_, parts_.streams, request);
  peer->send<v1::ConnectRequest, v1::ConnectReply>(
      &PeerClient::Stub::PrepareAsyncConnect, std::move(request), link.peer.instance,
      Clock::now() + kAttemptLimit, false,
      [this, name = name_of(link), attempt](const Result<v1::ConnectReply>& reply) {
        const auto found = links_.find(name);
        if (found == links_.end() || found->second.attempt != attempt) return;
        if (found->second.state != State::Asking) return;
        if (!reply) return fail_attempt(found->second, reply.error());
        open_connections(found->second, *reply);
      });
}

void PeerLinks::open_connections(Link& link, const v1::ConnectReply& reply) {
  if (const Status status = link.streams.open(ports_, link.peer, reply); !status)
    return fail_attempt(link, status.error());
  enter(link, State::Connecting);
  look_at_connections(name_of(link), link.attempt);
}

void PeerLinks::look_at_connections(const LinkName& name, std::uint64_t attempt) {
  const auto found = links_.find(name);
  if (found == links_.end() || found->second.attempt != attempt ||
      found->second.state != State::Connecting) {
    return;
  }
  Link& link = found->second;
  const net::Progress all = link.streams.stand();
  if (all == net::Progress::Failed) return fail_attempt(link, link.streams.why());
  if (all == net::Progress::Done) return give_to_worker(link);
  if (Clock::now() > link.since + kAttemptLimit) {
    return fail_attempt(link, error(ErrorCode::DeadlineExceeded, Reason::Timeout, "not all of ",
                                    link.streams.size(), " connections stand after ",
                                    kAttemptLimit.count(), " ms"));
  }
  parts_.loop.after(kLookAtConnections,
                    [this, name, attempt] { look_at_connections(name, attempt); });
}

void PeerLinks::connect(const PeerNode& from, const v1::ConnectRequest& request,
                        const Answer<v1::ConnectReply>& answer) {
  if (request.measure()) return answer(probes_.connect(from, request));
  const Result<std::size_t> worker = find_worker(request.worker());
  if (!worker) return answer(worker.error());
  if (connects_to(from)) {
    if (request.addresses_size() > 0) {
      return answer(error(ErrorCode::FailedPrecondition, Reason::None,
                          "of two daemons that one connects whose address is smaller: ",
                          parts_.table.self().address, " does, not ", from.address));
    }
    Link& link = link_to(from, *worker);
    answer(v1::ConnectReply{});
    // One that was a long time on its way, as on a lossy one, tells of a link before this one.
    if (link.state == State::Up && request.attempt() == link.attempt) {
      close_at_worker(link, error(ErrorCode::Unavailable, Reason::RemoteDied, from.to_string(),
                                  " has lost the link"));
      enter(link, State::Down);
    }
    if (link.state == State::Down) begin(link);
    return;
  }
  if (request.addresses_size() == 0)
    return answer(error(ErrorCode::InvalidArgument, Reason::BadValue, from.to_string(),
                        " would connect from no address"));
  Link& link = link_to(from, *worker);
  if (request.attempt() <= link.attempt_there)
    return answer(error(ErrorCode::FailedPrecondition, Reason::None, from.to_string(),
                        " has given this attempt up: number ", request.attempt(), ", after ",
                        link.attempt_there));
  link.attempt_there = request.attempt();
  if (link.state == State::Up || link.state == State::Opening)
    close_at_worker(link, error(ErrorCode::Unavailable, Reason::RemoteDied, from.to_string(),
                                " makes the link anew"));
  drop_attempt(link);
  Result<v1::ConnectReply> keys = hand_out_keys(link, request);
  if (!keys && !link.waiters.empty()) begin(link);
  answer(std::move(keys));
}

Result<v1::ConnectReply> PeerLinks::hand_out_keys(Link& link, const v1::ConnectRequest& request) {
  Result<v1::ConnectReply> reply = link.streams.expect(
      ports_, keys_, name_of(link), parts_.table.self(), link.peer, parts_.streams, request);
  if (!reply) return reply;
  link.attempt = ++last_attempt_;
  enter(link, State::Collecting);
  link.limit = parts_.loop.after(kAttemptLimit, [this, name = name_of(link)] {
    const auto found = links_.find(name);
    if (found == links_.end()) return;
    fail_attempt(found->second,
                 error(ErrorCode::DeadlineExceeded, Reason::Timeout, found->second.peer.to_string(),
                       " did not make all of its ", found->second.streams.size(),
                       " connections within ", kAttemptLimit.count(), " ms"));
  });
  ports_.look();
  return reply;
}

void PeerLinks::take_connection(net::ConnectionPtr connection) {
  const std::optional<LinkKeys::Taken> whose = keys_.last();
  if (!whose) return;
  if (whose->link.second == LinkProbes::kWorker)
    return probes_.take(whose->link.first, whose->stream, std::move(connection));
  const auto found = links_.find(whose->link);
  if (found == links_.end() || found->second.state != State::Collecting) {
    return;  // its link is made no longer
  }
  Link& link = found->second;
  if (link.streams.take(whose->stream, std::move(connection))) give_to_worker(link);
}

void PeerLinks::give_to_worker(Link& link) {
  parts_.loop.cancel(link.limit);
  enter(link, State::Opening);
  std::vector<net::ConnectionPtr> streams = link.streams.release();
  LinkSpec spec{.peer = link.peer.instance,
                .name = link.peer.name.empty() ? link.peer.address : link.peer.name,
                .messages = std::move(streams.front()),
                .bulk = {},
                .bulk_options = {},
                .regions = ports_.regions()};
  const LinkFigures* const measured = tuning_ ? tuning_->find(link.peer.address) : nullptr;
  for (std::size_t i = 1; i < streams.size(); ++i) {
    if (measured != nullptr && measured->without_copies)
      (void)streams[i]->send_without_copies(true);  // where the kernel cannot, it copies
    spec.bulk.push_back(std::move(streams[i]));
    if (!parts_.have_threads) continue;
    const int cpu = parts_.cpus.empty() ? -1 : parts_.cpus[next_cpu_++ % parts_.cpus.size()];
    spec.bulk_options.push_back({.spin = parts_.spin, .cpu = cpu});
  }
  parts_.workers[link.worker].worker->open_link(
      std::move(spec),
      replies_.on_loop<void>("take the link to " + link.peer.to_string(),
                             [this, name = name_of(link), attempt = link.attempt](
                                 const Status& status) { opened(name, attempt, status); }));
}

void PeerLinks::opened(const LinkName& name, std::uint64_t attempt, const Status& status) {
  const auto found = links_.find(name);
  if (found == links_.end()) return;
  Link& link = found->second;
  if (link.attempt != attempt || link.state != State::Opening) return;
  if (!status) {
    enter(link, State::Down);
    link.why = status.error();
    // What the worker has against it will not change by itself.
    return finish_waiters(link, status);
  }
  enter(link, State::Up);
  link.why = {};
  parts_.metrics.links_opened.add();
  traffic_.opened();
  log::info("link of {} to {}: {} streams {}and messages", parts_.workers[link.worker].device,
            link.peer.to_string(), link.streams.size() - 1,
            parts_.have_threads ? "" : "without threads ");
  finish_waiters(link, {});
}

void PeerLinks::fail_attempt(Link& link, const Error& why) {
  drop_attempt(link);
  link.why = why;
  if (link.waiters.empty()) return;
  const bool is_final = why.code == ErrorCode::NotFound || why.reason == Reason::BadConfig;
  if (is_final) return finish_waiters(link, why);
  link.retry = parts_.loop.after(kRetry, [this, name = name_of(link)] {
    const auto found = links_.find(name);
    if (found == links_.end() || found->second.state != State::Down) return;
    if (!found->second.waiters.empty()) begin(found->second);
  });
}

void PeerLinks::drop_attempt(Link& link) {
  parts_.loop.cancel(link.limit);
  parts_.loop.cancel(link.retry);
  keys_.drop(name_of(link));
  link.streams.drop();
  link.attempt = ++last_attempt_;
  enter(link, State::Down);
}

void PeerLinks::finish_waiters(Link& link, const Status& status) {
  for (Link::Waiter& waiter : std::exchange(link.waiters, {})) {
    parts_.loop.cancel(waiter.timer);
    parts_.loop.post([done = std::move(waiter.done), status] { done(status); });
  }
}

void PeerLinks::close_at_worker(const Link& link, const Error& why) {
  parts_.workers[link.worker].worker->close_link(
      link.peer.instance, why,
      replies_.on_loop<void>("close the link to " + link.peer.to_string(), [](const Status&) {}));
}

void PeerLinks::lost(PeerId peer, std::size_t worker, const Error& why) {
  const auto found = links_.find({peer, worker});
  if (found == links_.end() || found->second.state != State::Up) return;
  log::info("link of {} to {} is lost: {}", parts_.workers[worker].device,
            found->second.peer.to_string(), why.message);
  parts_.metrics.links_lost.add();
  found->second.why = why;
  enter(found->second, State::Down);
}

void PeerLinks::close(const PeerNode& peer, const Error& why) {
  for (auto at = links_.begin(); at != links_.end();) {
    Link& link = at->second;
    if (at->first.first != peer.instance) {
      ++at;
      continue;
    }
    if (link.state == State::Up || link.state == State::Opening) close_at_worker(link, why);
    finish_waiters(link, why);
    drop_attempt(link);
    at = links_.erase(at);
  }
}

}  // namespace arcomm

#include "daemon/control/peers/links/link_probes.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookAtConnections{1};
constexpr milliseconds kLongest{15'000};  // whatever a peer says

}  // namespace

Status LinkProbes::begin(const PeerNode& peer, bool without_copies, Clock::time_point deadline,
                         Done done) {
  if (is_stopped_ || !parts_.ports.is_open())
    return error(ErrorCode::Unavailable, Reason::None, parts_.table.self().to_string(),
                 " has no data ports open");
  if (run_ != nullptr) {
    return error(ErrorCode::FailedPrecondition, Reason::None, parts_.table.self().to_string(),
                 " is measuring the way to ", run_->peer.to_string(), ": one at a time");
  }
  if (thread_.joinable()) thread_.join();  // the last one has ended: it said so
  run_ = std::make_unique<Run>();
  run_->number = ++runs_;
  run_->peer = peer;
  run_->without_copies = without_copies;
  run_->deadline = std::min(deadline, Clock::now() + kLongest);
  run_->done = std::move(done);
  run_->limit = parts_.loop.at(run_->deadline, [this, number = run_->number] {
    if (!runs(number) || run_->is_measuring) return;  // the meter has the same deadline
    end(number, error(ErrorCode::DeadlineExceeded, Reason::Timeout, "the connections to ",
                      run_->peer.to_string(), " did not stand in time"));
  });
  return {};
}

void LinkProbes::measure(const PeerNode& peer, bool without_copies, Clock::time_point deadline,
                         Done done) {
  Peer* const way = parts_.table.find_peer(peer.address);
  Status begun =
      way == nullptr
          ? Status(error(ErrorCode::NotFound, Reason::None, "no daemon is known at ", peer.address))
          : begin(peer, without_copies, deadline, done);
  if (!begun) {
    parts_.loop.post([done = std::move(done), why = std::move(begun).error()] { done(why); });
    return;
  }
  v1::ConnectRequest request;
  request.set_measure(true);
  request.set_without_copies(without_copies);
  const auto left = std::chrono::duration_cast<milliseconds>(run_->deadline - Clock::now());
  request.set_remaining_ms(static_cast<std::uint64_t>(std::max<std::int64_t>(left.count(), 1)));
  LinkStreams::describe(parts_.ports, parts_.streams, request);
  way->send<v1::ConnectRequest, v1::ConnectReply>(
      &PeerClient::Stub::PrepareAsyncConnect, std::move(request), peer.instance, run_->deadline,
      false, [this, number = run_->number](const Result<v1::ConnectReply>& reply) {
        if (!runs(number)) return;
        if (!reply) return end(number, reply.error());
        const Status opened = run_->streams.open(parts_.ports, run_->peer, *reply);
        if (!opened) return end(number, opened.error());
        look_at_connections(number);
      });
}

void LinkProbes::look_at_connections(std::uint64_t number) {
  if (!runs(number) || run_->is_measuring) return;
  const net::Progress all = run_->streams.stand();
  if (all == net::Progress::Failed) return end(number, run_->streams.why());
  if (all == net::Progress::Done) return run_meter();
  parts_.loop.after(kLookAtConnections, [this, number] { look_at_connections(number); });
}

// Two daemons that ask each other at once would refuse each other: the one with the smaller address
// goes first.
void LinkProbes::give_way(const PeerNode& from) {
  const bool waits_for_it =
      run_ != nullptr && run_->done && !run_->is_measuring && run_->peer.instance == from.instance;
  if (!waits_for_it || from.address >= parts_.table.self().address) return;
  end(run_->number,
      error(ErrorCode::FailedPrecondition, Reason::None, from.to_string(),
            " is measuring the way to ", parts_.table.self().to_string(), ": one at a time"));
}

Result<v1::ConnectReply> LinkProbes::connect(const PeerNode& from,
                                             const v1::ConnectRequest& request) {
  give_way(from);
  const milliseconds wanted(std::min<std::uint64_t>(request.remaining_ms(),
                                                    static_cast<std::uint64_t>(kLongest.count())));
  ARC_RETURN_IF_ERROR(begin(from, request.without_copies(), Clock::now() + wanted, nullptr));
  Result<v1::ConnectReply> reply =
      run_->streams.expect(parts_.ports, parts_.keys, {from.instance, kWorker}, parts_.table.self(),
                           from, parts_.streams, request);
  if (!reply) {
    end(run_->number, reply.error());
    return reply;
  }
  parts_.ports.look();
  return reply;
}

void LinkProbes::take(PeerId from, std::uint32_t stream, net::ConnectionPtr connection) {
  if (run_ == nullptr || run_->is_measuring || run_->done || run_->peer.instance != from) return;
  if (run_->streams.take(stream, std::move(connection))) run_meter();
}

void LinkProbes::run_meter() {
  run_->is_measuring = true;
  const std::uint64_t number = run_->number;
  std::vector<net::ConnectionPtr> connections = run_->streams.release();
  if (connections.size() < 2) {
    return end(number, error(ErrorCode::FailedPrecondition, Reason::BadConfig,
                             run_->peer.to_string(), " offers no stream for bulk data"));
  }
  run_->meter = std::make_unique<LinkMeter>(
      std::move(connections),
      LinkMeter::Options{
          .deadline = run_->deadline, .without_copies = run_->without_copies, .spin = parts_.spin});
  try {
    thread_ = std::thread([this, number, &loop = parts_.loop, meter = run_->meter.get(),
                           leads = run_->done != nullptr] {
      Result<LinkSpeed> result{LinkSpeed{}};
      if (leads) {
        result = meter->lead();
      } else if (const Status followed = meter->follow(); !followed) {
        result = followed.error();
      }
      meter->close();  // the loop must not wait for it
      loop.post([this, number, result = std::move(result)] { end(number, result); });
    });
  } catch (const std::system_error& failure) {
    end(number, error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                      "no thread to measure on: ", failure.what()));
  }
}

void LinkProbes::end(std::uint64_t number, Result<LinkSpeed> result) {
  if (!runs(number)) return;
  if (thread_.joinable()) thread_.join();  // it has posted this as its last
  std::unique_ptr<Run> run = std::exchange(run_, nullptr);
  parts_.loop.cancel(run->limit);
  parts_.keys.drop({run->peer.instance, kWorker});
  if (run->done) {
    parts_.loop.post([done = std::move(run->done), result = std::move(result)] { done(result); });
  } else if (!result) {
    log::info("{} measured the way here, which ended: {}", run->peer.to_string(),
              result.error().message);
  } else {
    log::info("{} measured the way here", run->peer.to_string());
  }
}

void LinkProbes::cancel() {
  if (run_ == nullptr || !run_->done) return;
  if (run_->is_measuring) return run_->meter->stop();
  end(run_->number, error(ErrorCode::Cancelled, Reason::None, "the measurement was stopped"));
}

void LinkProbes::stop() {
  is_stopped_ = true;
  if (run_ != nullptr && run_->meter != nullptr) run_->meter->stop();
  if (thread_.joinable()) thread_.join();
  if (run_ != nullptr) parts_.loop.cancel(run_->limit);
  run_.reset();
}

}  // namespace arcomm

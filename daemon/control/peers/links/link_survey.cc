#include "daemon/control/peers/links/link_survey.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace arcomm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLimit{10'000};  // of one measurement
constexpr milliseconds kGrace{2000};    // then the loop has answered, or hangs
constexpr milliseconds kLookAtCancel{50};
constexpr milliseconds kBusy{3000};  // a daemon measures one way at a time
// A way without copies is worth its price in pages that are pinned from here on.
constexpr double kWorthIt = 1.05;

constexpr const char* kNoPeers =
    "there is no other daemon to measure with: name some in net.peers and restart the daemon";

Error cancelled_survey() {
  return error(ErrorCode::Cancelled, Reason::None,
               "the measurement was stopped; what was in force stays");
}

}  // namespace

template <typename Answered>
Result<Answered> LinkSurvey::on_loop(
    std::function<void(Peers& peers, std::function<void(Result<Answered>)> answer)> ask,
    const std::function<bool()>& cancelled) {
  struct Box {
    std::mutex mutex;
    std::condition_variable filled;
    std::optional<Result<Answered>> answer;
  };
  auto box = std::make_shared<Box>();
  auto fill = [box](Result<Answered> answer) {
    std::lock_guard lock(box->mutex);
    box->answer = std::move(answer);
    box->filled.notify_all();
  };
  loop_->post([peers = peers_, ask = std::move(ask), fill] {
    if (*peers != nullptr) return ask(**peers, fill);
    fill(error(ErrorCode::FailedPrecondition, Reason::None, kNoPeers));
  });
  const auto until = std::chrono::steady_clock::now() + kLimit + kGrace;
  bool is_told = false;
  std::unique_lock lock(box->mutex);
  while (!box->filled.wait_for(lock, kLookAtCancel, [&box] { return box->answer.has_value(); })) {
    if (std::chrono::steady_clock::now() > until)
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "control does not answer");
    lock.unlock();
    if (cancelled() && !std::exchange(is_told, true)) {
      loop_->post([peers = peers_] {
        if (*peers != nullptr) (*peers)->links().probes().cancel();
      });
    }
    lock.lock();
    // A loop that has ended answers nothing; one that runs answers a cancelled measurement soon.
    if (is_told &&
        !box->filled.wait_for(lock, milliseconds(1000), [&box] { return box->answer.has_value(); }))
      return cancelled_survey();
  }
  return *std::move(box->answer);
}

Result<std::vector<LinkSurvey::Candidate>> LinkSurvey::candidates(
    const std::vector<std::string>& wanted, const std::function<bool()>& cancelled) {
  using Candidates = std::vector<Candidate>;
  Result<Candidates> all = on_loop<Candidates>(
      [](Peers& peers, const std::function<void(Result<Candidates>)>& answer) {
        Candidates found;
        for (const auto& [address, peer] : peers.table().peers()) {
          if (!peer->is_configured() || peer->state() == Peer::State::Self) continue;
          Candidate& one = found.emplace_back();
          one.node = peer->node();
          one.node.address = address;
          if (peer->state() != Peer::State::Alive) {
            one.alive = peer->why().message.empty()
                            ? error(ErrorCode::Unavailable, Reason::None,
                                    "it is not alive: start arcommd there (arctl net says more)")
                            : peer->why();
          }
        }
        answer(std::move(found));
      },
      cancelled);
  if (!all) return all;
  for (const std::string& address : wanted) {
    if (std::none_of(all->begin(), all->end(),
                     [&address](const Candidate& one) { return one.node.address == address; }))
      return error(ErrorCode::NotFound, Reason::BadValue, "net.peers names no other daemon \"",
                   address, "\"");
  }
  std::erase_if(*all, [&wanted](const Candidate& one) {
    return !wanted.empty() &&
           std::find(wanted.begin(), wanted.end(), one.node.address) == wanted.end();
  });
  if (all->empty()) return error(ErrorCode::FailedPrecondition, Reason::None, kNoPeers);
  return all;
}

Result<std::vector<SurveyedLink>> LinkSurvey::run(const std::vector<std::string>& wanted,
                                                  const Progress& progress,
                                                  const std::function<bool()>& cancelled) {
  const Result<std::vector<Candidate>> all = candidates(wanted, cancelled);
  if (!all) return all.error();
  std::vector<SurveyedLink> links;
  for (const Candidate& one : *all) {
    if (cancelled()) return cancelled_survey();
    links.push_back(survey(one, cancelled));
    progress(static_cast<double>(links.size()) / static_cast<double>(all->size()), links.back());
  }
  if (cancelled()) return cancelled_survey();
  return links;
}

SurveyedLink LinkSurvey::survey(const Candidate& candidate,
                                const std::function<bool()>& cancelled) {
  SurveyedLink link;
  link.figures.address = candidate.node.address;
  link.figures.name = candidate.node.name;
  link.status = candidate.alive;
  if (!link.status) return link;
  const PeerId peer = candidate.node.instance;
  const Result<std::uint64_t> before = bytes_with(peer, cancelled);
  const Result<LinkSpeed> copying = measure(candidate.node, false, cancelled);
  if (!copying) {
    link.status = copying.error();
    return link;
  }
  const Result<LinkSpeed> uncopied = measure(candidate.node, true, cancelled);
  const Result<std::uint64_t> after = bytes_with(peer, cancelled);
  if (before && after && *after > *before) link.carried_bytes = *after - *before;
  link.with_copies = *copying;
  if (uncopied) link.without_copies = *uncopied;
  const std::uint64_t copied_per_second = link.with_copies.bytes_per_second;
  const std::uint64_t uncopied_per_second = link.without_copies.bytes_per_second;
  link.figures.without_copies =
      static_cast<double>(uncopied_per_second) > kWorthIt * static_cast<double>(copied_per_second);
  link.figures.bytes_per_second =
      link.figures.without_copies ? uncopied_per_second : copied_per_second;
  constexpr double kNsPerUs = 1000;
  link.figures.latency_us = static_cast<double>(copying->latency.count()) / kNsPerUs;
  return link;
}

Result<LinkSpeed> LinkSurvey::measure(const PeerNode& peer, bool without_copies,
                                      const std::function<bool()>& cancelled) {
  const auto until = std::chrono::steady_clock::now() + kBusy;
  for (;;) {
    Result<LinkSpeed> speed = on_loop<LinkSpeed>(
        [peer, without_copies](Peers& peers, std::function<void(Result<LinkSpeed>)> answer) {
          peers.links().probes().measure(peer, without_copies, EventLoop::Clock::now() + kLimit,
                                         std::move(answer));
        },
        cancelled);
    // The peer may still be closing the one before.
    const bool is_busy = !speed && speed.error().code == ErrorCode::FailedPrecondition &&
                         speed.error().reason == Reason::None;
    if (!is_busy || cancelled() || std::chrono::steady_clock::now() > until) return speed;
    std::this_thread::sleep_for(kLookAtCancel);
  }
}

Result<std::uint64_t> LinkSurvey::bytes_with(PeerId peer, const std::function<bool()>& cancelled) {
  return on_loop<std::uint64_t>(
      [peer](Peers& peers, const std::function<void(Result<std::uint64_t>)>& answer) {
        answer(peers.links().bytes_with(peer));
      },
      cancelled);
}

}  // namespace arcomm

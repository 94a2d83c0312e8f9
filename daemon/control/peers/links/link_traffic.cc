#include "daemon/control/peers/links/link_traffic.h"

#include <algorithm>
#include <chrono>

#include "daemon/telemetry/metrics/metrics.h"

namespace arcomm {
namespace {

constexpr std::chrono::milliseconds kLookAtTraffic{1000};

std::uint64_t since(std::uint64_t before, std::uint64_t now) {
  return now - std::min(now, before);
}

}  // namespace

void LinkTraffic::opened() {
  if (is_counting_) return;
  is_counting_ = true;
  loop_.after(kLookAtTraffic, [this] { ask(); });
}

void LinkTraffic::ask() {
  is_counting_ = false;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].worker->inspect(
        replies_.on_loop<WorkerSnapshot>("report", [this, i](const Result<WorkerSnapshot>& shot) {
          if (shot) count(*shot, i);
        }));
  }
}

std::uint64_t LinkTraffic::bytes_with(PeerId peer) const {
  std::uint64_t bytes = 0;
  for (const auto& [name, link] : counted_)
    if (name.first == peer) bytes += link.sent_bytes + link.received_bytes;
  return bytes;
}

// Goes on while there is something to count.
void LinkTraffic::count(const WorkerSnapshot& shot, std::size_t worker) {
  std::erase_if(counted_, [&](const auto& one) {
    return one.first.second == worker &&
           std::none_of(shot.links.begin(), shot.links.end(),
                        [&](const LinkSnapshot& link) { return link.peer == one.first.first; });
  });
  for (const LinkSnapshot& now : shot.links) {
    LinkSnapshot& before = counted_[{now.peer, worker}];
    if (now.sent_bytes < before.sent_bytes || now.received_bytes < before.received_bytes)
      before = {};  // another link
    metrics_.link_sent_bytes.add(now.sent_bytes - before.sent_bytes);
    metrics_.link_received_bytes.add(now.received_bytes - before.received_bytes);
    metrics_.link_retransmits.add(since(before.retransmits, now.retransmits));
    metrics_.link_waited_for_peer_us.add(since(before.waited_for_peer_us, now.waited_for_peer_us));
    metrics_.link_waited_for_buffer_us.add(
        since(before.waited_for_buffer_us, now.waited_for_buffer_us));
    metrics_.link_wait_ns[Waiting::Spin].add(since(before.spun_ns, now.spun_ns));
    metrics_.link_wait_ns[Waiting::Sleep].add(since(before.slept_ns, now.slept_ns));
    before = now;
  }
  std::uint64_t delivered = 0;
  for (const auto& [name, link] : counted_) delivered += link.delivered_bytes_per_second;
  metrics_.link_delivered_bytes_per_second.set(static_cast<std::int64_t>(delivered));
  if (!shot.links.empty()) opened();
}

}  // namespace arcomm

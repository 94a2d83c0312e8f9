#include "daemon/control/peers/meetings/meetings.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

namespace arcomm {
namespace {

std::uint64_t random_communicator() {
  std::uint64_t number = 0;
  while (number == 0) {
    // 8 bytes come whole once the kernel's generator is ready, as it is after boot; EINTR before.
    if (::getrandom(&number, sizeof(number), 0) < 0 && errno != EINTR) number = EventLoop::now_ns();
  }
  return number;
}

Result<v1::PeerEmpty> peer_empty_or(const Status& status) {
  if (!status) return status.error();
  return v1::PeerEmpty();
}

}  // namespace

Meetings::Meetings(Parts parts)
    : loop_(parts.loop),
      rendezvous_(parts.rendezvous),
      peers_(parts.peers),
      here_({.rendezvous = parts.rendezvous,
             .peers = parts.peers,
             .links = parts.links,
             .name_of_worker = std::move(parts.name_of_worker),
             .allows_gpu_codecs = [policy = parts.policy] { return policy().gpu_codecs; },
             .arm = [this](EventLoop::Clock::time_point when) { arm(when); }}),
      root_({.peers = parts.peers,
             .policy = std::move(parts.policy),
             .random = random_communicator,
             .is_live_here =
                 [&rendezvous = parts.rendezvous](const UniqueIdBytes& unique_id, uid_t uid,
                                                  Rank rank) {
                   return rendezvous.live(unique_id, uid, rank).has_value();
                 },
             .arm = [this](EventLoop::Clock::time_point when) { arm(when); }}) {
  peers_.use_handler(this);
}

Meetings::~Meetings() {
  peers_.use_handler(nullptr);
  rendezvous_.watch({});
  if (timer_) loop_.cancel(*timer_);
}

// One timer however many meet: at the earliest time, or somewhat too early once that has changed.
void Meetings::arm(EventLoop::Clock::time_point when) {
  if (timer_ && timer_->at <= when) return;
  if (timer_) loop_.cancel(*timer_);
  timer_ = loop_.at(when, [this] {
    timer_.reset();
    here_.tick();
    root_.tick();
    for (const auto next : {here_.next_tick(), root_.next_tick()}) {
      if (next) arm(*next);
    }
  });
}

void Meetings::announced(const PeerNode& from, const v1::AnnounceRequest& request,
                         Answer<v1::AnnounceReply> answer) {
  answer(root_.announced(from, request));
}

void Meetings::form(const PeerNode& from, const v1::FormRequest& request,
                    Answer<v1::FormReply> answer) {
  here_.form(from, request, std::move(answer));
}

void Meetings::commit(const PeerNode& from, const v1::CommitRequest& request,
                      Answer<v1::PeerEmpty> answer) {
  answer(peer_empty_or(here_.commit(from, request)));
}

void Meetings::abandon(const PeerNode& from, const v1::AbandonRequest& request,
                       Answer<v1::PeerEmpty> answer) {
  answer(peer_empty_or(here_.abandon(from, request)));
}

void Meetings::peer_lost(const PeerNode& peer, const Error& why) {
  here_.peer_lost(peer, why);
  root_.peer_lost(peer, why);
}

}  // namespace arcomm

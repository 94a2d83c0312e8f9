#include "daemon/session/kept_rings.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "daemon/telemetry/log/log.h"
#include "proto/ring/doorbell.h"
#include "proto/ring/segment.h"

namespace arcomm {
namespace {

constexpr std::string_view kPrefix = "rings-";
constexpr std::size_t kIdDigits = 16;
constexpr std::string_view kDetail =
    "the daemon died with this open: create the communicator again";

std::optional<SessionId> session_in(std::string_view name) {
  name.remove_prefix(kPrefix.size());
  std::uint64_t bits = 0;
  const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), bits, 16);
  if (name.size() != kIdDigits || failure != std::errc{} || end != name.data() + name.size())
    return std::nullopt;
  return SessionId::from_bits(bits);
}

// The stamp in a slot says which position the slot takes next.
template <typename Slot>
std::uint64_t next_of(const ring::RingView<Slot>& ring, std::uint64_t slot) {
  const std::uint64_t stamp = std::atomic_ref(ring.slots[slot].stamp)
                                  .load(std::memory_order_acquire);  // pairs with the publisher's
  return stamp - ring::stamp_before(0);
}

// Where the producer stood: the first slot that still waits for the turn that slot 0 has seen.
// nullopt: no producer leaves such stamps. A producer that goes on meanwhile is seen as it was.
template <typename Slot>
std::optional<std::uint64_t> find_tail(const ring::RingView<Slot>& ring) {
  const std::uint64_t next_parity = next_of(ring, 0);
  if (next_parity % ring.count != 0) return std::nullopt;
  if (next_parity == 0) return 0;
  const std::uint64_t turn = next_parity - ring.count;
  for (std::uint64_t i = 1; i < ring.count; ++i) {
    const std::uint64_t next = next_of(ring, i);
    if (next == turn + i) return next;
    if (next != next_parity + i) return std::nullopt;
  }
  return next_parity;
}

// As Producer does it, which begins at position 0 and so cannot go on where another left off.
void publish(const ring::RingView<ring::Completion>& ring, std::uint64_t position,
             const ring::Completion& completion) {
  constexpr std::size_t kStampAt = offsetof(ring::Completion, stamp);
  constexpr std::size_t kAfterStamp = kStampAt + sizeof(completion.stamp);
  ring::Completion& slot = ring.slots[position & (ring.count - 1)];
  const auto* from = reinterpret_cast<const std::byte*>(&completion);
  auto* to = reinterpret_cast<std::byte*>(&slot);
  std::memcpy(to, from, kStampAt);
  std::memcpy(to + kAfterStamp, from + kAfterStamp, sizeof(completion) - kAfterStamp);
  std::atomic_ref(slot.stamp)
      .store(ring::stamp_of(position, ring.count),
             std::memory_order_release);  // pairs with Consumer::peek()
}

ring::Completion answer_to(const ring::WorkRequest& unread) {
  ring::Completion completion;
  // Each word is read once and only handed back: there is nothing to check.
  auto& request = const_cast<ring::WorkRequest&>(unread);
  completion.ticket = std::atomic_ref(request.ticket).load(std::memory_order_relaxed);
  completion.seq = std::atomic_ref(request.seq).load(std::memory_order_relaxed);
  completion.code = static_cast<std::uint8_t>(ErrorCode::Unavailable);
  completion.reason = static_cast<std::uint8_t>(Reason::DaemonLost);
  completion.stage = ring::Stage::Done;
  static_assert(kDetail.size() < sizeof(completion.detail));
  std::memcpy(completion.detail, kDetail.data(), kDetail.size());
  return completion;
}

void answer_unread(const ring::Segment& segment, EndedRings& ended) {
  const ring::RingView<ring::WorkRequest> requests = segment.requests();
  const ring::RingView<ring::Completion> completions = segment.completions();
  const std::optional<std::uint64_t> tail = find_tail(requests);
  const std::optional<std::uint64_t> answered = find_tail(completions);
  if (!tail || !answered) return;
  const std::uint64_t head = requests.consumer->head.load(std::memory_order_acquire);
  const std::uint64_t unread = *tail - head;
  const std::uint64_t taken =
      *answered - completions.consumer->head.load(std::memory_order_acquire);
  const std::uint64_t open = *tail - *answered;  // each request gets one completion
  const std::uint64_t slots = segment.slots();
  if (unread > slots || taken > slots || open < unread || open > 2 * slots) return;
  ended.in_order = true;
  ended.operations = open;
  ended.unread = std::min(unread, slots - taken);
  for (std::uint64_t i = 0; i < ended.unread; ++i)
    publish(completions, *answered + i, answer_to(requests.slots[(head + i) & (slots - 1)]));
  requests.consumer->head.store(head + ended.unread, std::memory_order_release);
}

}  // namespace

std::string store_name_of(SessionId session) {
  char name[kPrefix.size() + kIdDigits + 1];
  std::snprintf(name, sizeof(name), "%s%016llx", kPrefix.data(),
                static_cast<unsigned long long>(session.bits()));
  return name;
}

Result<EndedRings> end_rings(UniqueFd fd) {
  Result<ring::Segment> segment = ring::Segment::open(std::move(fd));
  if (!segment) return std::move(segment).error();
  ring::ControlLines& control = segment->control();
  const auto state =
      static_cast<ring::SessionState>(control.session_state.load(std::memory_order_acquire));
  EndedRings ended;
  // What the dead one said already is better informed: a client that was shut out shall read why.
  ended.was_open = state != ring::SessionState::Closed && state != ring::SessionState::Quarantined;
  if (ended.was_open) {
    answer_unread(*segment, ended);
    control.session_reason.store(static_cast<std::uint32_t>(Reason::DaemonLost),
                                 std::memory_order_relaxed);
    control.session_state.store(static_cast<std::uint32_t>(ring::SessionState::Closed),
                                std::memory_order_release);  // pairs with the client's look
  }
  // In any case: the dead one may have written without coming to wake anybody.
  ring::FutexDoorbell(control.completions.consumer_sleeps).ring_all();
  return ended;
}

void KeptRings::keep(SessionId session, int segment_fd) {
  service_.store(segment_fd, store_name_of(session));
}

// Should this be lost, the next daemon finds rings that are closed, and drops them.
void KeptRings::release(SessionId session) {
  service_.unstore(store_name_of(session));
}

void KeptRings::end_previous(std::vector<InheritedSocket>& passed) {
  const auto is_kept = [](const InheritedSocket& one) { return one.name.starts_with(kPrefix); };
  auto delivery = ServiceManager::Delivery::Patient;  // they are many at once
  for (InheritedSocket& one : passed) {
    if (!is_kept(one)) continue;
    const std::optional<SessionId> session = session_in(one.name);
    const Result<EndedRings> ended =
        session ? end_rings(std::move(one.fd))
                : error(ErrorCode::InvalidArgument, Reason::BadValue, "that names no session");
    if (!ended) {
      log::warn("systemd kept \"{}\", which is dropped: {}", one.name, ended.error().message);
    } else if (ended->was_open) {
      metrics_.sessions_lost[Reason::DaemonLost].add();
      log::info("session {} of the previous daemon is closed: {}", fmt::streamed(*session),
                ended->in_order
                    ? std::to_string(ended->operations) + " operations ended with it, " +
                          std::to_string(ended->unread) + " of them unread"
                    : "its rings are not in order, so nothing in them was answered");
    }
    // A manager that does not read is waited for once, not for every session.
    if (!service_.unstore(one.name, delivery)) delivery = ServiceManager::Delivery::AtOnce;
  }
  std::erase_if(passed, is_kept);
}

}  // namespace arcomm

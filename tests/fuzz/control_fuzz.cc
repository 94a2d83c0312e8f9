// What a stranger can send to the control plane before and after it knows him: bytes of a
// descriptor message with any number of descriptors, and requests parsed from bytes and checked
// against a rendezvous and a ledger.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <string>

#include "daemon/control/descriptors/fd_wire.h"
#include "daemon/control/descriptors/shared_memory.h"
#include "daemon/control/rendezvous/rendezvous.h"
#include "daemon/control/rpc/request_limits.h"
#include "daemon/control/session_ledger.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "proto/arcommd/v1/control.pb.h"
#include "proto/text.h"

namespace {

namespace v1 = arcommd::v1;

void fuzz_descriptor_message(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (std::size_t fds = 0; fds <= 5; ++fds) {
    if (!arcomm::check_fd_request(bytes, fds)) continue;
    if (fds > 1 || size != sizeof(arcomm::FdMessage)) __builtin_trap();
  }
}

// A sequence of joins, departures and time, as the bytes say; every call must be answered exactly
// once in the end.
void fuzz_rendezvous(const std::uint8_t* data, std::size_t size) {
  using arcomm::Rendezvous;
  std::size_t asked = 0, answered = 0;
  Rendezvous::Formed formed;
  std::size_t ranks = 0;
  Rendezvous rendezvous(
      [&](std::size_t, const arcomm::CommunicatorSpec& spec, Rendezvous::Formed done) {
        formed = std::move(done);
        ranks = spec.ranks.size();
      });
  auto now = Rendezvous::Clock::now();
  for (std::size_t i = 0; i + 4 <= size; i += 4) {
    const std::uint8_t* step = data + i;
    arcomm::UniqueIdBytes id{};
    id[0] = static_cast<std::byte>(step[1] & 3);
    const arcomm::SessionId session{step[2] & 7u, 1};
    switch (step[0] & 7) {
      case 0:
      case 1:
      case 2: {
        Rendezvous::Call call;
        call.unique_id = id;
        call.rank = static_cast<std::int8_t>(step[3]) % 5;
        call.ranks = step[0] >> 3 & 7;
        call.session = session;
        call.serial = asked & 15;
        call.peer.uid = step[2] >> 6;
        call.worker = step[1] >> 7;
        call.called_at = now;
        call.deadline = now + std::chrono::milliseconds(step[3]);
        call.answer = [&answered](const arcomm::Result<Rendezvous::Joined>&) { ++answered; };
        ++asked;
        rendezvous.join(std::move(call));
        break;
      }
      case 3:
        rendezvous.cancel(step[3] & 15);
        break;
      case 4:
        now += std::chrono::milliseconds(step[3]);
        rendezvous.sweep(now);
        break;
      case 5:
        rendezvous.dissolve(id, step[3] & 3);
        break;
      case 6:
        rendezvous.session_gone(session, 1, arcomm::Reason::RemoteDied);
        break;
      case 7:
        if (auto done = std::exchange(formed, nullptr)) {
          if ((step[3] & 1) != 0) {
            done(std::vector<arcomm::MemberId>(ranks));
          } else {
            done(arcomm::error(arcomm::ErrorCode::Internal, arcomm::Reason::Bug, "refused"));
          }
        }
        break;
    }
    (void)rendezvous.forming();
  }
  rendezvous.fail_all(
      arcomm::error(arcomm::ErrorCode::Unavailable, arcomm::Reason::ShuttingDown, "end"));
  if (asked != answered) __builtin_trap();
}

template <typename Message>
void fuzz_request(const std::string& bytes, arcomm::SessionLedger& ledger) {
  Message message;
  if (!message.ParseFromString(bytes)) return;
  if (!arcomm::check_request(message)) return;
  (void)ledger.authorize(message.session().session(), message.session().session_token(), 1000);
}

// Whatever tickets it names, and however often: an offer is taken once, and only by its ticket.
void fuzz_release(const v1::ReleaseBufferRequest& release, arcomm::SessionLedger& ledger,
                  arcomm::SessionEntry& session) {
  std::set<std::uint64_t> offered;
  for (int i = 0; i < 3; ++i) {
    const auto ticket =
        ledger.add_offer(session, arcomm::UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
    if (ticket) offered.insert(*ticket);
  }
  for (const std::uint64_t ticket : release.offered_fds()) {
    if (ledger.take_offer(session, ticket).ok() != (offered.erase(ticket) == 1)) __builtin_trap();
  }
  if (session.offers.size() != offered.size()) __builtin_trap();
  if (session.buffers.contains(arcomm::BufferId::from_bits(release.buffer()))) __builtin_trap();
}

void fuzz_requests(const std::string& bytes) {
  arcomm::SessionLedger ledger;
  arcomm::SessionEntry entry;
  entry.peer.uid = 1000;
  auto session = ledger.open(std::move(entry));
  fuzz_request<v1::CreateCommunicatorRequest>(bytes, ledger);
  fuzz_request<v1::DetachRequest>(bytes, ledger);
  fuzz_request<v1::CreatePlanRequest>(bytes, ledger);
  v1::AttachRequest attach;
  if (attach.ParseFromString(bytes) && arcomm::check_request(attach)) {
    if (attach.device().size() > arcomm::kMostNameBytes) __builtin_trap();
    const std::string name = arcomm::safe_text(attach.process_name(), arcomm::kNameBytes);
    if (name.size() > arcomm::kNameBytes) __builtin_trap();
    if (arcomm::safe_text(name, arcomm::kNameBytes) != name) __builtin_trap();
  }
  v1::ReleaseBufferRequest release;
  if (release.ParseFromString(bytes) && arcomm::check_request(release))
    fuzz_release(release, ledger, **session);
  v1::RegisterBufferRequest registration;
  if (registration.ParseFromString(bytes) && arcomm::check_request(registration)) {
    (void)ledger.take_offer(**session, registration.offered_fd());
    (void)arcomm::check_offered_memory(STDIN_FILENO, registration.offset_bytes(),
                                       registration.length_bytes());
  }
  v1::AllocateBufferRequest allocation;
  if (allocation.ParseFromString(bytes) && arcomm::check_request(allocation)) {
    const auto length = arcomm::round_to_pages(allocation.bytes());
    if (length && (*length < allocation.bytes() || *length % 4096 != 0)) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  switch (data[0] % 3) {
    case 0:
      fuzz_descriptor_message(data + 1, size - 1);
      break;
    case 1:
      fuzz_rendezvous(data + 1, size - 1);
      break;
    case 2:
      fuzz_requests(std::string(reinterpret_cast<const char*>(data + 1), size - 1));
      break;
  }
  return 0;
}

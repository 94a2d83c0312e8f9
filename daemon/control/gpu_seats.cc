#include "daemon/control/gpu_seats.h"

#include "daemon/telemetry/metrics/metrics.h"
#include "proto/device_mailbox.h"

namespace arcomm {
namespace {

// One alone gets three quarters.
constexpr FairShare::Limits kOfOneGpu{.node = kMaxDeviceMembers, .greed = 3};

}  // namespace

Result<GpuSeats::SeatPtr> GpuSeats::take(uid_t uid, const std::string& gpu) {
  FairShare& shares = by_gpu_.try_emplace(gpu, kOfOneGpu).first->second;
  if (shares.ask(uid) == FairShare::Answer::Yes) return std::make_shared<Seat>(shares, uid);
  metrics_.count_rejected(Reason::Quota);
  return error(
      ErrorCode::ResourceExhausted, Reason::Quota, gpu,
      " is short of room for communicators: all users have ", shares.total(), " of ",
      kMaxDeviceMembers, ", of which uid ", uid, " and its range have ", shares.of_tenant(uid),
      ", and one more would be above their fair share of it: destroy one first, or ask the "
      "operator who has the others");
}

}  // namespace arcomm

#include "daemon/exec/backend.h"

namespace arcomm {
namespace {

Error only_on_gpus(const char* what) {
  return error(ErrorCode::Unimplemented, Reason::Unsupported, what);
}

}  // namespace

Result<AllocatedBuffer> Backend::allocate_buffer(SessionId, const AllocationSpec&) {
  return only_on_gpus("this device's memory is the client's own: nothing is allocated here");
}

Status Backend::bind(PlanId, PersistentPlan&, const CheckedRange&, const CheckedRange&) {
  return {};
}

Result<bool> Backend::form(const CommunicatorSpec&, std::unique_ptr<CommunicatorExtension>&) {
  return true;
}

Result<MailboxDescriptors> Backend::export_mailbox(const Communicator&, Rank) const {
  return only_on_gpus("this device has no mailboxes");
}

Status Backend::begin_measuring(std::uint32_t, std::uint64_t) {
  return only_on_gpus("this worker serves no GPU");
}

Result<std::optional<std::uint64_t>> Backend::prepare_measuring() {
  return only_on_gpus("this worker serves no GPU");
}

Status Backend::measure(GpuMeasurement) {
  return only_on_gpus("this worker serves no GPU");
}

Result<std::optional<double>> Backend::measured() {
  return only_on_gpus("this worker serves no GPU");
}

Status Backend::begin_flag_echo(std::uint32_t) {
  return only_on_gpus("this worker serves no GPU");
}

Result<std::optional<FlagEcho>> Backend::flag_echo() {
  return only_on_gpus("this worker serves no GPU");
}

}  // namespace arcomm

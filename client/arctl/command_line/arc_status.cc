#include "client/arctl/command_line/arc_status.h"

namespace arcomm::arctl {

Status status_of(arcResult_t result) {
  if (result == arcSuccess) return {};
  arcErrorInfo_t info{};
  info.struct_size = sizeof(info);
  arcGetLastErrorInfo(&info);
  Error failure = error(error_code_from(static_cast<unsigned>(result)),
                        reason_from(static_cast<unsigned>(info.reason)), arcGetLastError(nullptr));
  failure.rank = info.rank;
  return failure;
}

}  // namespace arcomm::arctl

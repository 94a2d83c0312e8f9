#include "transport/net/tcp/uncopied_sends.h"

#include <linux/errqueue.h>  // after <time.h>, whose timespec it takes
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <cstring>

namespace arcomm::net {

void UncopiedSends::begun(std::uint64_t position) {
  if (!sends_) sends_ = std::make_unique<std::array<Send, kMost>>();
  send(begun_++) = {.position = position};
}

std::uint64_t UncopiedSends::released(std::uint64_t sent) const {
  return is_empty() ? sent : (*sends_)[first_ % kMost].position;
}

bool UncopiedSends::collect(int descriptor) {
  const std::uint64_t before = first_;
  while (!is_empty()) {
    alignas(cmsghdr) std::array<std::byte, 128> control;
    msghdr message{};
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (recvmsg(descriptor, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) break;
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
         part = CMSG_NXTHDR(&message, part)) {
      const bool is_report = (part->cmsg_level == SOL_IP && part->cmsg_type == IP_RECVERR) ||
                             (part->cmsg_level == SOL_IPV6 && part->cmsg_type == IPV6_RECVERR);
      if (!is_report) continue;
      sock_extended_err report{};
      std::memcpy(&report, CMSG_DATA(part), sizeof report);
      if (report.ee_origin != SO_EE_ORIGIN_ZEROCOPY || report.ee_errno != 0) continue;
      over(report.ee_info, report.ee_data);
      if ((report.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0)
        copied_ += report.ee_data - report.ee_info + 1;
    }
  }
  return first_ != before;
}

// Reports may come in another order than the sends.
void UncopiedSends::over(std::uint32_t from, std::uint32_t to) {
  const std::uint32_t first_of_kernel = static_cast<std::uint32_t>(first_);
  for (std::uint64_t i = from - first_of_kernel; i <= std::uint32_t{to - first_of_kernel}; ++i) {
    if (i < begun_ - first_) send(first_ + i).is_over = true;
  }
  while (first_ != begun_ && send(first_).is_over) ++first_;
}

}  // namespace arcomm::net

#include "daemon/control/rpc/request_limits.h"

#include <string>

#include "daemon/control/peers/peer_limits.h"
#include "daemon/control/session_ledger.h"

namespace arcomm {
namespace {

Status check_field(const char* field, std::size_t has, std::size_t most) {
  if (has <= most) return {};
  return error(ErrorCode::ResourceExhausted, Reason::BadValue, "the request's ", field, " has ",
               has, ", and ", most, " is the most");
}

Status check_name(const char* field, const std::string& name) {
  return check_field(field, name.size(), kMostNameBytes);
}

}  // namespace

Status check_request_bytes(std::size_t bytes, std::size_t most) {
  return check_field("length in bytes", bytes, most);
}

Status check_request(const v1::AttachRequest& request) {
  ARC_RETURN_IF_ERROR(check_request_bytes(request.ByteSizeLong()));
  return check_name("device", request.device());  // of the process's name as much as fits is kept
}

Status check_request(const v1::CreateCommunicatorRequest& request) {
  ARC_RETURN_IF_ERROR(check_request_bytes(request.ByteSizeLong()));
  ARC_RETURN_IF_ERROR(check_name("device", request.device()));
  ARC_RETURN_IF_ERROR(check_field("number of visible_gpus",
                                  static_cast<std::size_t>(request.visible_gpus_size()),
                                  kMostGpusInRequest));
  for (const std::string& gpu : request.visible_gpus())
    ARC_RETURN_IF_ERROR(check_name("visible_gpus", gpu));
  return {};
}

Status check_request(const v1::AllocateBufferRequest& request) {
  ARC_RETURN_IF_ERROR(check_request_bytes(request.ByteSizeLong()));
  return check_name("device", request.device());
}

// A little more than can be registered at once: what is refused for that has its offers taken.
Status check_request(const v1::RegisterBufferRequest& request) {
  ARC_RETURN_IF_ERROR(check_request_bytes(request.ByteSizeLong(), kMostBytesOfAnyRequest));
  ARC_RETURN_IF_ERROR(check_name("device", request.device()));
  return check_field("number of chunks", static_cast<std::size_t>(request.chunks_size()),
                     kMaxOffers);
}

Status check_request(const v1::ReleaseBufferRequest& request) {
  ARC_RETURN_IF_ERROR(check_request_bytes(request.ByteSizeLong()));
  return check_field("number of offered_fds", static_cast<std::size_t>(request.offered_fds_size()),
                     kMaxOffers);
}

Status check_request(const v1::TuneRequest& request) {
  ARC_RETURN_IF_ERROR(check_request_bytes(request.ByteSizeLong()));
  ARC_RETURN_IF_ERROR(check_name("device", request.device()));
  ARC_RETURN_IF_ERROR(check_field("number of peers", static_cast<std::size_t>(request.peers_size()),
                                  kMostPeersInRequest));
  for (const std::string& peer : request.peers()) ARC_RETURN_IF_ERROR(check_name("peers", peer));
  return {};
}

Status check_request(const v1::AnnounceRequest& request) {
  return check_request_bytes(request.ByteSizeLong(), kMostPeerMessageBytes);
}

Status check_request(const v1::FormRequest& request) {
  return check_request_bytes(request.ByteSizeLong(), kMostPeerMessageBytes);
}

}  // namespace arcomm

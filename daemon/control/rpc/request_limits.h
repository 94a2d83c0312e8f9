// How large a request may be, asked before it is queued: what is parsed may take a hundred times
// the room of its bytes, and a call that waits keeps it. Any thread.
#pragma once

#include <cstddef>

#include "proto/arcommd/v1/control.pb.h"
#include "proto/arcommd/v1/peer.pb.h"
#include "proto/status.h"

namespace arcomm {

namespace v1 = arcommd::v1;

// The largest are a few hundred bytes.
inline constexpr std::size_t kMostRequestBytes = 4 * 1024;
// But of RegisterBuffer, for GPU memory in many pieces, each of which may have a handle. Nothing
// larger is parsed.
inline constexpr std::size_t kMostBytesOfAnyRequest = 32 * 1024;
inline constexpr int kMostGpusInRequest = 64;
inline constexpr std::size_t kMostNameBytes = 256;  // of a device, of a peer's address
inline constexpr int kMostPeersInRequest = 128;

// ResourceExhausted naming the field, what it has and the most that it may have.
Status check_request_bytes(std::size_t bytes, std::size_t most = kMostRequestBytes);

template <typename Request>
Status check_request(const Request& request) {
  return check_request_bytes(request.ByteSizeLong());
}
Status check_request(const v1::AttachRequest& request);
Status check_request(const v1::CreateCommunicatorRequest& request);
Status check_request(const v1::AllocateBufferRequest& request);
Status check_request(const v1::RegisterBufferRequest& request);
Status check_request(const v1::ReleaseBufferRequest& request);
Status check_request(const v1::TuneRequest& request);
// Of other daemons: with what all ranks of a communicator have to say.
Status check_request(const v1::AnnounceRequest& request);
Status check_request(const v1::FormRequest& request);

}  // namespace arcomm

#include "client/src/host/codec_choice.h"

#include "client/src/gpu/gpu_member.h"
#include "client/src/session/session.h"

namespace arcomm::client {

Status choose_codec(const std::optional<Coding>& asked, const Member& member,
                    CollectiveCall& call) {
  const Coding& wanted = asked ? *asked : member.default_coding;
  if (!wanted.any()) return {};
  if (wanted.error_class.any()) {
    call.codec = member.gpu ? member.gpu->codec_for(wanted.error_class, call)
                            : member.launches.codec_for(wanted.error_class, launch_key_of(call));
    // For trace and metrics; an older daemon has no word for it.
    if ((member.session->submission().features() & ring::kErrorClasses) != 0)
      call.codec_origin = CodecOrigin::ErrorClass;
    return {};
  }
  if (!codec_serves(wanted.codec, call.op, call.dtype)) {
    return error(ErrorCode::InvalidArgument, Reason::Unsupported, "codec ", text_of(wanted.codec),
                 asked ? "" : ", the communicator's default,", " does not serve ", call.op, " of ",
                 call.dtype, ": ", kServedByCodecs,
                 asked ? "" : "; give this call an arcAllReduceConfig_t without a codec");
  }
  if (member.gpu) ARC_RETURN_IF_ERROR(member.gpu->check_codec(call, wanted.codec));
  call.codec = wanted.codec;
  return {};
}

}  // namespace arcomm::client

#include "client/src/gpu/in_stream/in_stream_path.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "client/src/gpu/memory/gpu_memory_check.h"

namespace arcomm::client {

Result<Trigger> trigger_from_environment() {
  const char* const value = std::getenv("ARCOMM_TRIGGER");
  const std::string_view word = value != nullptr ? value : "";
  if (word.empty() || word == "early") return Trigger::Early;
  if (word == "late") return Trigger::Late;
  return error(ErrorCode::InvalidArgument, Reason::BadValue, "ARCOMM_TRIGGER is \"", word,
               "\": early or late expected");
}

InStreamPath::InStreamPath(Parts parts)
    : parts_(std::move(parts)),
      uses_(InStreamUses::create({.gpu = parts_.gpu,
                                  .mailbox = parts_.mailbox,
                                  .exchange = parts_.exchange,
                                  .rank = parts_.rank})) {}

Status InStreamPath::load(Codec codec) {
  if (codec == Codec::None) return {};
  return parts_.gpu->load_codec(parts_.exchange->kernels(), codec);
}

Status InStreamPath::prepare(const CollectiveCall& call) {
  ARC_RETURN_IF_ERROR(load(call.codec));
  if (call.is_empty()) return {};
  ARC_RETURN_IF_ERROR(check_memory(call.send, call.send_bytes()));
  return call.recv == call.send ? Status() : check_memory(call.recv, call.recv_bytes());
}

Status InStreamPath::check_memory(const void* address, std::uint64_t bytes) {
  if (uses_->knows(address, bytes)) return {};
  const Result<GpuRange> memory = memory_around(*parts_.gpu, address, bytes);
  if (!memory) return memory.error();
  uses_->add(*memory);
  return {};
}

Status InStreamPath::launch(const CollectiveCall& call, const Start& start) {
  return start.launch.path == LaunchPath::Alone ? copy(call, start) : reduce(call, start);
}

// Its input is its output, whatever the operation.
Status InStreamPath::copy(const CollectiveCall& call, const Start& start) {
  if (call.is_empty() || call.recv == call.send) return {};
  std::uint32_t* const left =
      start.is_captured ? nullptr : &parts_.mailbox->notes()->in_stream_left;
  ARC_RETURN_IF_ERROR(
      parts_.gpu->copy(call.recv, call.send, call.recv_bytes(), left, start.stream));
  if (start.is_captured) {
    uses_->captured(call);
  } else {
    uses_->launched(call, 1);
  }
  return {};
}

Status InStreamPath::reduce(const CollectiveCall& call, const Start& start) {
  const InStreamShape& shape = start.launch.in_stream;
  InStreamCall made = parts_.exchange->call();
  made.send = call.send;
  made.recv = call.recv;
  made.mailbox = parts_.mailbox->words();
  made.doorbells = parts_.mailbox->doorbells();
  made.left = start.is_captured ? nullptr : &parts_.mailbox->notes()->in_stream_left;
  made.timeout_ns = std::min(start.timeout_ns, parts_.exchange->max_timeout_ns());
  made.count = static_cast<std::uint32_t>(call.send_count);
  made.say(shape.what(call.dtype, call.op, call.codec, call.collective), start.identity);
  made.rank = parts_.rank;
  made.ranks = parts_.ranks;
  made.behind = blocks();
  made.triggers_late = parts_.trigger == Trigger::Late ? 1 : 0;
  ARC_RETURN_IF_ERROR(
      parts_.gpu->launch_in_stream(parts_.exchange->kernels(), shape, call.dtype, call.op, made,
                                   start.waits_behind && !start.is_captured, start.stream));
  if (start.is_captured) {
    uses_->captured(call);
  } else {
    uses_->launched(call, shape.blocks);
  }
  return {};
}

}  // namespace arcomm::client

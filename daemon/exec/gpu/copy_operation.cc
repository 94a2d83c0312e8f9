// The order of the copies.
//
// Chunk c of shard p (copy_shape.h) goes from each rank r to p, and waits there where r's shard of
// p's output is to be: nobody writes there before p has combined it. Where a rank's output is its
// input, and for the rest, it goes into slot c % kCopySlots of p's scratch, once what lay in that
// has been combined. From p's output the result goes into everybody's.
//
// A GPU's copies follow one another in one stream, as two at a time share a link and are no faster:
// those out of chunk c's parts, one peer at a time and all ranks to different ones, then those of
// chunk c - 1's result, which has been combined meanwhile.
//
// All begin when all ranks' launches have come here, as then their buffers and the scratch are
// free. A rank's launches go on when all copies have ended, into its output and out of its input.
#include "daemon/exec/gpu/copy_operation.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/exec/gpu/copy_shape.h"

namespace arcomm {
namespace {

// What a rank records in its queue from chunk c on is fewer until chunk c + kCopySlots is sent.
static_assert((kCopySlots + 1) * (kMaxGpuRanks + 1) < kQueueEvents);

// Puts one operation into the queues. The first error stays, and no chunk of another rank follows
// it, only what brings the queues together again.
class CopyOperation {
 public:
  CopyOperation(std::span<const CopyPart> parts, std::uint32_t parity,
                std::uint64_t most_chunk_bytes)
      : parts_(parts),
        parity_(parity),
        ranks_(static_cast<std::uint32_t>(parts.size())),
        element_(size_of(call_of(0).dtype)),
        in_slots_(std::any_of(parts.begin(), parts.end(), shares_memory)),
        shape_(
            copy_shape(call_of(0).count, call_of(0).dtype, ranks_, in_slots_, most_chunk_bytes)) {}

  Status run() {
    begin();
    const std::uint64_t all = shape_.all_chunks();
    for (std::uint64_t chunk = 0; chunk <= all && error_; ++chunk) {
      for (std::uint32_t rank = 0; rank < ranks_ && chunk < all; ++rank) scatter(rank, chunk);
      for (std::uint32_t rank = 0; rank < ranks_ && chunk < all; ++rank) reduce(rank, chunk);
      for (std::uint32_t rank = 0; rank < ranks_ && chunk > 0; ++rank) gather(rank, chunk - 1);
    }
    end();
    return std::move(error_);
  }

 private:
  using Kind = QueueStream::Kind;

  // Whether the rank's output overlaps its input.
  static bool shares_memory(const CopyPart& part) {
    const CudaAllReduce& call = *part.call;
    const auto* const send = static_cast<const unsigned char*>(call.send[call.rank]);
    const auto* const recv = static_cast<const unsigned char*>(call.recv[call.rank]);
    const std::uint64_t bytes = call.count * size_of(call.dtype);
    return send < recv + bytes && recv < send + bytes;
  }

  const CudaAllReduce& call_of(std::uint32_t rank) const { return *parts_[rank].call; }
  const unsigned char* send_of(std::uint32_t rank) const {
    return static_cast<const unsigned char*>(call_of(rank).send[rank]);
  }
  // By the address at which rank `seen_by` finds it.
  unsigned char* recv_of(std::uint32_t rank, std::uint32_t seen_by) const {
    return static_cast<unsigned char*>(call_of(seen_by).recv[rank]);
  }
  QueueStream stream(std::uint32_t rank, Kind kind) const {
    return {.queue = parts_[rank].queue, .kind = kind, .parity = parity_};
  }
  void note(std::uint32_t rank, Status result) {
    if (result || !error_) return;
    Error why = std::move(result).error();
    why.message = "copy_engine, rank " + std::to_string(rank) + ": " + why.message;
    error_ = std::move(why);
  }
  QueueEvent record(std::uint32_t rank, Kind kind) {
    Result<QueueEvent> event = parts_[rank].queues->record(stream(rank, kind));
    if (event) return *event;
    note(rank, std::move(event).error());
    return {};
  }
  void wait(std::uint32_t rank, Kind kind, QueueEvent event) {
    if (event.id != 0) note(rank, parts_[rank].queues->wait(stream(rank, kind), event));
  }
  void copy(std::uint32_t rank, void* to, const void* from, ElementRange range) {
    note(rank, parts_[rank].queues->copy(parts_[rank].queue, to, from, range.size() * element_));
  }

  bool waits_in_output(std::uint64_t chunk) const { return !in_slots_ && chunk < shape_.chunks; }
  // Where `from`'s part of a chunk waits in the memory of `at`, by the address at which rank
  // `seen_by` finds it.
  unsigned char* place(std::uint32_t seen_by, std::uint32_t at, std::uint32_t from,
                       std::uint64_t chunk) const {
    if (waits_in_output(chunk))
      return recv_of(at, seen_by) + shape_.chunk_of(from, chunk).first * element_;
    return static_cast<unsigned char*>(call_of(seen_by).scratch[at]) + kCopyOffset +
           copy_slot_offset(ranks_, at, from, chunk);
  }

  void begin() {
    QueueEvent ready[kMaxGpuRanks];
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) ready[rank] = record(rank, Kind::Launches);
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      for (std::uint32_t peer = 0; peer < ranks_; ++peer) wait(rank, Kind::Copies, ready[peer]);
    }
  }

  void scatter(std::uint32_t rank, std::uint64_t chunk) {
    if (!error_) return;
    for (std::uint32_t hop = 1; hop < ranks_; ++hop) {
      const std::uint32_t owner = (rank + hop) % ranks_;
      const ElementRange range = shape_.chunk_of(owner, chunk);
      if (range.empty()) continue;
      if (!waits_in_output(chunk) && chunk >= kCopySlots)
        wait(rank, Kind::Copies, combined_[owner][chunk % kCopySlots]);
      copy(rank, place(rank, owner, rank, chunk), send_of(rank) + range.first * element_, range);
      sent_[rank][owner] = record(rank, Kind::Copies);
    }
  }

  void reduce(std::uint32_t rank, std::uint64_t chunk) {
    const ElementRange range = shape_.chunk_of(rank, chunk);
    if (range.empty() || !error_) return;
    const std::uint64_t at = range.first * element_;
    CombineCall work{.out = recv_of(rank, rank) + at,
                     .count = range.size(),
                     .ranks = ranks_,
                     .dtype = call_of(rank).dtype,
                     .op = call_of(rank).op,
                     .most_blocks = call_of(rank).most_blocks};
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      if (peer != rank) wait(rank, Kind::Launches, sent_[peer][rank]);
      work.parts[peer] = peer == rank ? send_of(rank) + at : place(rank, rank, peer, chunk);
    }
    note(rank, parts_[rank].queues->combine(parts_[rank].queue, parity_, work));
    combined_[rank][chunk % kCopySlots] = record(rank, Kind::Launches);
  }

  void gather(std::uint32_t rank, std::uint64_t chunk) {
    const ElementRange range = shape_.chunk_of(rank, chunk);
    if (range.empty() || !error_) return;
    wait(rank, Kind::Copies, combined_[rank][chunk % kCopySlots]);
    const std::uint64_t at = range.first * element_;
    for (std::uint32_t hop = 1; hop < ranks_; ++hop) {
      const std::uint32_t peer = (rank + hop) % ranks_;
      // The rank's own part for the peer lay there.
      if (waits_in_output(chunk)) wait(rank, Kind::Copies, combined_[peer][chunk % kCopySlots]);
      copy(rank, recv_of(peer, rank) + at, recv_of(rank, rank) + at, range);
    }
  }

  // Also after an error: whoever finds a rank's queue empty may take the memory back.
  void end() {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const QueueEvent ended = record(rank, Kind::Copies);
      for (std::uint32_t peer = 0; peer < ranks_; ++peer) wait(peer, Kind::Launches, ended);
    }
  }

  std::span<const CopyPart> parts_;
  const std::uint32_t parity_;
  const std::uint32_t ranks_;
  const std::uint64_t element_;
  const bool in_slots_;
  const CopyShape shape_;
  QueueEvent sent_[kMaxGpuRanks][kMaxGpuRanks] = {};  // the latest chunk: by sender and owner
  QueueEvent combined_[kMaxGpuRanks][kCopySlots] = {};
  Status error_;
};

}  // namespace

Status launch_by_copy_engines(std::span<const CopyPart> parts, std::uint32_t parity,
                              std::uint64_t most_chunk_bytes) {
  for (const CopyPart& part : parts)
    ARC_RETURN_IF_ERROR(can_launch(CudaAlgorithm::CopyEngine, *part.call));
  if (parts.empty() || parts.size() != parts[0].call->ranks) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, parts.size(),
                 " parts: copy_engine takes those of all ranks at once");
  }
  if (parts[0].call->count != 0)
    ARC_RETURN_IF_ERROR(CopyOperation(parts, parity, most_chunk_bytes).run());
  for (const CopyPart& part : parts) {  // says that it has ended
    CudaAllReduce nothing = *part.call;
    nothing.count = 0;
    ARC_RETURN_IF_ERROR(
        part.queues->launch(part.queue, parity, CudaAlgorithm::CopyEngine, nothing));
  }
  return {};
}

}  // namespace arcomm

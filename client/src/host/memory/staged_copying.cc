#include "client/src/host/memory/staged_copying.h"

#include <cstring>

namespace arcomm::client {
namespace {

void fill(Operation& operation, StagedSegment& staged, std::uint64_t segment) {
  if (!operation.stages_send()) return;
  std::memcpy(staged.slot->memory, operation.call.send + operation.segment_offset(segment),
              operation.segment_bytes(segment));
}

void drain(const Operation& operation, const StagedSegment& staged) {
  if (!operation.stages_recv()) return;
  std::memcpy(operation.call.recv + operation.segment_offset(staged.segment), staged.slot->memory,
              operation.segment_bytes(staged.segment));
}

}  // namespace

void StagedCopying::fill_first(Operation& operation) {
  fill(operation, operation.staged[0], 0);
  operation.staged[0].state = StagedSegment::State::Filled;
  operation.next_fill = 1;
}

void StagedCopying::queue(Operation& operation) {
  if (operation.wants_copy || operation.failed()) return;
  operation.wants_copy = true;
  if (!operation.copying) queue_.push_back(&operation);
}

void StagedCopying::forget(Operation& operation) {
  std::erase(queue_, &operation);
}

void StagedCopying::run(Lock& lock, const Enough& enough) {
  while (!queue_.empty() && !enough()) {
    Operation& operation = *queue_.front();
    queue_.erase(queue_.begin());
    operation.copying = true;
    while (operation.wants_copy && !operation.failed() && !enough()) {
      operation.wants_copy = false;
      copy_segments(operation, lock, enough);
    }
    operation.wants_copy = operation.wants_copy && !operation.failed();
    operation.copying = false;
    if (operation.wants_copy) queue_.push_back(&operation);
    notices_.copying_stopped(operation);
  }
}

void StagedCopying::copy_segments(Operation& operation, Lock& lock, const Enough& enough) {
  for (unsigned i = 0; i < operation.num_staged; ++i) {
    StagedSegment& staged = operation.staged[i];
    if (i > 0 && enough()) {
      operation.wants_copy = true;
      return;
    }
    if (staged.state == StagedSegment::State::Reduced && !operation.failed()) {
      lock.unlock();
      drain(operation, staged);
      lock.lock();
      staged.state = StagedSegment::State::Empty;
      ++operation.finished;
    }
    const std::uint64_t next = operation.next_fill;
    if (staged.state == StagedSegment::State::Empty && !operation.failed() &&
        next < operation.cut.segments && next % operation.num_staged == i) {
      lock.unlock();
      fill(operation, staged, next);
      lock.lock();
      staged.state = StagedSegment::State::Filled;
      operation.next_fill = next + 1;
      operation.wants_copy |= i + 1 == operation.num_staged;  // the first slot may be due again
      notices_.segment_filled(operation);
    }
  }
}

}  // namespace arcomm::client

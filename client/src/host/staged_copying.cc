#include "client/src/host/staged_copying.h"

#include <cstring>

namespace arcomm::client {
namespace {

void fill(Operation& operation, StagingLane& lane, std::uint64_t segment) {
  if (!operation.stages_send()) return;
  std::memcpy(lane.slot->memory, operation.call.send + operation.segment_offset(segment),
              operation.segment_bytes(segment));
}

void drain(const Operation& operation, const StagingLane& lane) {
  if (!operation.stages_recv()) return;
  std::memcpy(operation.call.recv + operation.segment_offset(lane.segment), lane.slot->memory,
              operation.segment_bytes(lane.segment));
}

}  // namespace

void StagedCopying::fill_first(Operation& operation) {
  fill(operation, operation.lanes[0], 0);
  operation.lanes[0].state = StagingLane::State::Filled;
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
      copy_lanes(operation, lock, enough);
    }
    operation.wants_copy = operation.wants_copy && !operation.failed();
    operation.copying = false;
    if (operation.wants_copy) queue_.push_back(&operation);
    notices_.copying_stopped(operation);
  }
}

void StagedCopying::copy_lanes(Operation& operation, Lock& lock, const Enough& enough) {
  for (unsigned i = 0; i < operation.num_lanes; ++i) {
    StagingLane& lane = operation.lanes[i];
    if (i > 0 && enough()) {
      operation.wants_copy = true;
      return;
    }
    if (lane.state == StagingLane::State::Reduced && !operation.failed()) {
      lock.unlock();
      drain(operation, lane);
      lock.lock();
      lane.state = StagingLane::State::Empty;
      ++operation.finished;
    }
    const std::uint64_t next = operation.next_fill;
    if (lane.state == StagingLane::State::Empty && !operation.failed() &&
        next < operation.cut.segments && next % operation.num_lanes == i) {
      lock.unlock();
      fill(operation, lane, next);
      lock.lock();
      lane.state = StagingLane::State::Filled;
      operation.next_fill = next + 1;
      operation.wants_copy |= i + 1 == operation.num_lanes;  // the first lane may be due again
      notices_.segment_filled(operation);
    }
  }
}

}  // namespace arcomm::client

#include "daemon/comm/open_communicators.h"

#include <algorithm>
#include <utility>

namespace arcomm {
namespace {

constexpr std::uint64_t kSweepEveryNs = 500'000;

bool is_open(const Communicator& communicator) {
  if (communicator.board.has_open()) return true;
  return communicator.ready() && communicator.elsewhere != nullptr &&
         communicator.elsewhere->anybody_waits();
}

}  // namespace

void OpenCommunicators::await(Communicator& communicator, std::uint64_t deadline_ns) {
  next_deadline_ns_ = std::min(next_deadline_ns_, deadline_ns);
  swept_next_ns_ = std::min(swept_next_ns_, deadline_ns);
  list(communicator);
}

void OpenCommunicators::list(Communicator& communicator) {
  if (!std::exchange(communicator.listed, true)) open_.push_back(&communicator);
}

void OpenCommunicators::erase(Communicator& communicator) {
  if (!communicator.listed) return;
  std::erase(open_, &communicator);
  swept_ = 0;  // who has moved forward is looked at again
}

void OpenCommunicators::clear() {
  open_.clear();
  swept_ = 0;
}

bool OpenCommunicators::begin_sweep(std::uint64_t now_ns) {
  if (now_ns < next_deadline_ns_) return false;
  if (swept_ != 0) return true;
  // A flood of short deadlines must not make every turn of the loop look at everything.
  if (now_ns < last_sweep_ns_ + kSweepEveryNs) {
    next_deadline_ns_ = last_sweep_ns_ + kSweepEveryNs;
    return false;
  }
  last_sweep_ns_ = now_ns;
  swept_next_ns_ = kNever;
  return true;
}

std::optional<OpenCommunicators::Late> OpenCommunicators::next_late(std::uint64_t now_ns) {
  while (swept_ < open_.size()) {
    Communicator& communicator = *open_[swept_];
    if (!is_open(communicator)) {
      communicator.listed = false;
      open_[swept_] = open_.back();
      open_.pop_back();
      continue;
    }
    ++swept_;
    if (Arrival* late = late_of(communicator, now_ns); late != nullptr)
      return Late{communicator, *late};
  }
  swept_ = 0;
  next_deadline_ns_ = swept_next_ns_;
  return std::nullopt;
}

Arrival* OpenCommunicators::late_of(const Communicator& communicator, std::uint64_t now_ns) {
  Arrival* late = nullptr;
  communicator.board.for_each_open([&](Arrival& arrival) {
    if (arrival.deadline_ns == 0) return;
    if (arrival.state == Arrival::State::Running && !arrival.failure.ok()) return;  // told already
    if (arrival.deadline_ns > now_ns) {
      swept_next_ns_ = std::min(swept_next_ns_, arrival.deadline_ns);
    } else if (late == nullptr) {
      late = &arrival;
    }
  });
  return late;
}

}  // namespace arcomm

#include "daemon/exec/host/host_launcher.h"

#include <sched.h>

#include <algorithm>
#include <string>
#include <utility>

#include "transport/device/host/host_device.h"

namespace arcomm {

Result<std::unique_ptr<HostLauncher>> HostLauncher::create(Device& device, std::uint32_t threads) {
  if (device.kind() != DeviceKind::Host) {
    return error(ErrorCode::Internal, Reason::Bug, "tiles of the host were to run on ",
                 device.name());
  }
  auto& host = static_cast<HostDevice&>(device);
  std::unique_ptr<HostLauncher> launcher(new HostLauncher());
  for (std::uint32_t i = 1; i < std::min(threads, kMaxStreams); ++i) {
    Result<Stream> stream = host.create_stream("arc-tiles-" + std::to_string(i));
    if (!stream) return std::move(stream).error();
    auto hand = std::make_unique<Hand>();
    hand->launcher = launcher.get();
    hand->stream = std::move(stream).value();
    launcher->crew_.push_back(std::move(hand));
  }
  return launcher;
}

HostLauncher::~HostLauncher() {
  for (const auto& hand : crew_) {
    while (hand->serving.load(std::memory_order_acquire)) ::sched_yield();
  }
}

TileJob* HostLauncher::start(const Choice& choice, const AllReduceArgs& args) {
  const auto free = std::find_if(jobs_.begin(), jobs_.end(), [](TileJob& job) {
    // seq_cst: pairs with serve_once(), see there.
    return !job.taken && job.users.load(std::memory_order_seq_cst) == 0;
  });
  if (free == jobs_.end()) return nullptr;
  TileJob& job = *free;
  job.choice = choice;
  job.args = args;
  job.taken = true;
  job.stopped = false;
  job.tiles_run.store(0, std::memory_order_relaxed);
  job.cursor.start(choice, args);
  job.open.store(true, std::memory_order_seq_cst);
  starts_.fetch_add(1, std::memory_order_seq_cst);
  call_hands(choice.streams - 1);
  return &job;
}

void HostLauncher::stop(TileJob& job) {
  if (!std::exchange(job.stopped, true)) job.cursor.stop();
}

void HostLauncher::release(TileJob& job) {
  job.open.store(false, std::memory_order_seq_cst);
  job.taken = false;
}

void HostLauncher::call_hands(std::uint32_t wanted) {
  for (const auto& hand : crew_) {
    if (wanted-- == 0) return;
    // A hand that is about to leave looks at starts_ once more after it has said so (serve()).
    if (hand->serving.exchange(true, std::memory_order_seq_cst)) continue;
    if (hand->stream.enqueue({&HostLauncher::serve, hand.get()}) != Enqueue::Done) {
      hand->serving.store(false, std::memory_order_seq_cst);  // the worker does it alone
    }
  }
}

void HostLauncher::serve(void* context) {
  Hand& hand = *static_cast<Hand*>(context);
  HostLauncher& launcher = *hand.launcher;
  std::size_t next_job = 0;
  while (true) {
    const std::uint64_t seen = launcher.starts_.load(std::memory_order_seq_cst);
    while (launcher.serve_once(next_job)) {
    }
    hand.serving.store(false, std::memory_order_seq_cst);
    // Whoever started an operation in between may have seen us serving: then it is ours to look
    // again.
    if (launcher.starts_.load(std::memory_order_seq_cst) == seen) return;
    if (hand.serving.exchange(true, std::memory_order_seq_cst)) return;
  }
}

// One tile of each open job, in turn.
bool HostLauncher::serve_once(std::size_t& next_job) {
  bool found = false;
  for (std::size_t i = 0; i < kMaxJobs; ++i) {
    TileJob& job = jobs_[(next_job + i) % kMaxJobs];
    if (!job.open.load(std::memory_order_relaxed)) continue;
    // Dekker's: we count ourselves in and then look whether it is open; release() closes it and
    // start() then looks whether anybody is counted in. One of the two sees the other.
    job.users.fetch_add(1, std::memory_order_seq_cst);
    if (job.open.load(std::memory_order_seq_cst)) {
      found |= job.pull();
    }
    job.users.fetch_sub(1, std::memory_order_seq_cst);
  }
  next_job = (next_job + 1) % kMaxJobs;
  return found;
}

}  // namespace arcomm

#include "daemon/control/descriptors/fair_prefault.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/control/descriptors/shared_memory.h"

namespace arcomm {

void FairPrefault::allocate(Asker asker, std::uint64_t bytes,
                            std::function<void(Result<UniqueFd>)> done) {
  struct Making {
    std::optional<GrowingMemory> memory;
    Status status;
  };
  auto making = std::make_shared<Making>();
  auto job = std::make_unique<Job>();
  job->asker = asker;
  job->slice = [making, bytes, most = parts_.slice_bytes](std::uint64_t promised) {
    if (!making->memory) {
      Result<GrowingMemory> begun = GrowingMemory::begin("arcomm-buffer", bytes, promised);
      if (!begun) {
        making->status = std::move(begun).error();
        return std::uint64_t{0};
      }
      making->memory.emplace(std::move(begun).value());
    }
    making->status = making->memory->grow(most);
    return making->status ? making->memory->missing() : 0;
  };
  job->end = [this, making, done = std::move(done)](const Status& dropped) {
    UniqueFd memory;
    if (making->memory) memory = std::move(*making->memory).take().fd;
    const Status& status = dropped ? making->status : dropped;
    if (status) return done(std::move(memory));
    parts_.closer.close(std::move(memory));  // which takes as long as touching it did
    done(status.error());
  };
  queue(std::move(job));
  run_next();
}

void FairPrefault::check(Asker asker, std::shared_ptr<UniqueFd> memory, std::uint64_t length_bytes,
                         std::function<void(Result<MissingPages>)> done) {
  auto missing = std::make_shared<Result<MissingPages>>(MissingPages{});
  auto job = std::make_unique<Job>();
  job->asker = asker;
  job->slice = [missing, memory = std::move(memory), length_bytes](std::uint64_t promised) {
    *missing = check_missing_pages(memory->get(), length_bytes, promised);
    return std::uint64_t{0};
  };
  job->end = [missing, done = std::move(done)](const Status& dropped) {
    if (!dropped) return done(dropped.error());
    done(std::move(*missing));
  };
  queue(std::move(job));
  run_next();
}

void FairPrefault::look_at_groups(Asker asker, pid_t process,
                                  std::function<void(Result<std::vector<MemoryGroup>>)> done) {
  auto groups = std::make_shared<std::vector<MemoryGroup>>();
  auto job = std::make_unique<Job>();
  job->asker = asker;
  job->slice = [groups, process](std::uint64_t) {
    if (process > 0) *groups = read_memory_groups(process);  // else the kernel shows us none
    return std::uint64_t{0};
  };
  job->end = [groups, done = std::move(done)](const Status& dropped) {
    if (!dropped) return done(dropped.error());
    done(std::move(*groups));
  };
  queue(std::move(job), true);
  run_next();
}

void FairPrefault::drop_call(std::uint64_t call, const Error& why) {
  if (call != 0) drop([call](const Asker& asker) { return asker.call == call; }, why);
}

void FairPrefault::drop_session(SessionId session, const Error& why) {
  drop([session](const Asker& asker) { return asker.session == session; }, why);
}

void FairPrefault::drop(const std::function<bool(const Asker&)>& unwanted, const Error& why) {
  if (running_ && !running_->dropped && unwanted(running_->asker)) running_->dropped = why;
  std::vector<std::unique_ptr<Job>> ended;
  for (Turn& turn : turns_) {
    const auto gone = std::stable_partition(turn.jobs.begin(), turn.jobs.end(),
                                            [&](const auto& job) { return !unwanted(job->asker); });
    std::move(gone, turn.jobs.end(), std::back_inserter(ended));
    turn.jobs.erase(gone, turn.jobs.end());
  }
  std::erase_if(turns_, [](const Turn& turn) { return turn.jobs.empty(); });
  // Last: an answer may come back here.
  for (const auto& job : ended) job->end(why);
}

void FairPrefault::queue(std::unique_ptr<Job> job, bool first) {
  if (first) {
    turns_.push_front({job->asker.session, {}});
    turns_.front().jobs.push_back(std::move(job));
    return;
  }
  auto turn = std::find_if(turns_.begin(), turns_.end(),
                           [&](const Turn& one) { return one.session == job->asker.session; });
  if (turn == turns_.end()) turn = turns_.insert(turn, Turn{job->asker.session, {}});
  turn->jobs.push_back(std::move(job));
}

std::unique_ptr<FairPrefault::Job> FairPrefault::take_next() {
  Turn turn = std::move(turns_.front());
  turns_.pop_front();
  std::unique_ptr<Job> job = std::move(turn.jobs.front());
  turn.jobs.pop_front();
  if (!turn.jobs.empty()) turns_.push_back(std::move(turn));
  return job;
}

void FairPrefault::run_next() {
  if (running_ || turns_.empty()) return;
  running_ = take_next();
  std::uint64_t promised = parts_.promised ? parts_.promised() : 0;
  for (const Turn& turn : turns_) {
    for (const auto& job : turn.jobs) promised += job->missing;
  }
  // It stays here, so that nothing of it ends on the memory thread.
  Job* job = running_.get();
  if (parts_.thread.post([this, job, promised] {
        job->missing = job->slice(promised);
        parts_.loop.post([this] { sliced(); });
      })) {
    return;
  }
  queue(std::exchange(running_, nullptr));
  drop([](const Asker&) { return true; },
       error(ErrorCode::Unavailable, Reason::ShuttingDown, "the daemon is shutting down"));
}

void FairPrefault::sliced() {
  std::unique_ptr<Job> job = std::exchange(running_, nullptr);
  if (job->dropped) {
    job->end(*job->dropped);
  } else if (job->missing == 0) {
    job->end(Status());
  } else {
    queue(std::move(job));
  }
  run_next();
}

}  // namespace arcomm

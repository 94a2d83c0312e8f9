// AllReduce between processes, as simple as can be: of small integers in every type, up to a few
// megabytes, through shared memory that has the name of a unique id. Waits for ever for a rank that
// does not come: whoever tests with it ends its processes. Thread: one.
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "client/arctl/bench/element.h"
#include "proto/types.h"
#include "tests/integration/fake_gpus/stream.h"

namespace arcomm::fake {

inline constexpr std::size_t kMostBytes = 4 << 20;
inline constexpr int kMostRanks = 3;
inline constexpr std::size_t kIdBytes = 128;

struct RanksMemory {
  std::atomic<bool> ready;
  pthread_barrier_t barrier;
  std::byte sent[kMostRanks][kMostBytes];
};

inline void draw_id(char* id) {
  if (::getentropy(id, kIdBytes) != 0) std::abort();
}

class Ranks {
 public:
  Ranks(const char* id, int ranks, int rank) : ranks_(ranks), rank_(rank) {
    std::string name = "/arcomm-fake-";
    for (int i = 0; i < 8; ++i) name += std::to_string(static_cast<unsigned char>(id[i])) + "-";
    const int fd = ::shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
    if (ranks > kMostRanks || ::ftruncate(fd, sizeof(RanksMemory)) != 0) std::abort();
    void* const place =
        ::mmap(nullptr, sizeof(RanksMemory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (place == MAP_FAILED) std::abort();
    ::close(fd);
    memory_ = static_cast<RanksMemory*>(place);
    if (rank == 0) {
      pthread_barrierattr_t shared;
      ::pthread_barrierattr_init(&shared);
      ::pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
      ::pthread_barrier_init(&memory_->barrier, &shared, static_cast<unsigned>(ranks));
      memory_->ready = true;
    }
    while (!memory_->ready) std::this_thread::yield();
    ::pthread_barrier_wait(&memory_->barrier);
    if (rank == 0) ::shm_unlink(name.c_str());
  }

  void meet() { ::pthread_barrier_wait(&memory_->barrier); }

  // On the stream. is_wrong: the last rank's last element comes out wrong, unless it is the only.
  void all_reduce(const void* send, void* recv, std::size_t count, DType dtype, ReduceOp op,
                  bool is_wrong) {
    std::function<void()> work = [=, this] {
      const std::size_t element = size_of(dtype);
      std::memcpy(memory_->sent[rank_], send, count * element);
      ::pthread_barrier_wait(&memory_->barrier);
      for (std::size_t i = 0; i < count; ++i) {
        double result = arctl::decode(dtype, memory_->sent[0] + i * element);
        for (int rank = 1; rank < ranks_; ++rank)
          result = combined(op, result, arctl::decode(dtype, memory_->sent[rank] + i * element));
        if (op == ReduceOp::Avg) result /= ranks_;
        const bool is_last = i + 1 == count;
        if (is_wrong && is_last && count > 1 && rank_ + 1 == ranks_) result += 1;
        const std::uint64_t bits = arctl::encode_small(dtype, static_cast<int>(result));
        std::memcpy(static_cast<std::byte*>(recv) + i * element, &bits, element);
      }
      ::pthread_barrier_wait(&memory_->barrier);
    };
    fake_stream_do(&work);
  }

 private:
  static double combined(ReduceOp op, double so_far, double next) {
    switch (op) {
      case ReduceOp::Sum:
      case ReduceOp::Avg:
        return so_far + next;
      case ReduceOp::Prod:
        return so_far * next;
      case ReduceOp::Min:
        return std::min(so_far, next);
      case ReduceOp::Max:
        return std::max(so_far, next);
    }
    return so_far;
  }

  int ranks_, rank_;
  RanksMemory* memory_ = nullptr;
};

}  // namespace arcomm::fake

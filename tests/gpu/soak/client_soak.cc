#include "tests/gpu/soak/client_soak.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "tests/gpu/service/client/client_options.h"
#include "tests/gpu/soak/soak_kernels.h"
#include "tests/gpu/soak/soak_lane.h"

namespace arcomm::gpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLanes = 2;
constexpr int kRoundsSteps = 64;  // of each communicator; then the ranks wait for each other
constexpr std::uint64_t kLongestSleepUs = 2000, kLongestSpinUs = 100;

class Soak {
 public:
  explicit Soak(arcUniqueId id)
      : shared_(options.seed), own_(options.seed * 1000 + static_cast<unsigned>(options.rank)) {
    cuda(spin(1, nullptr), "spinning");  // kernels are in place before anybody waits
    for (std::uint32_t number = 0; number < kLanes; ++number) {
      // Any other bytes are another id.
      id.internal[0] = static_cast<char>(id.internal[0] + 1);
      lanes_[number] = std::make_unique<SoakLane>(number, id, shared_);
      lanes_[number]->try_the_comparison();
    }
    cuda(cudaMalloc(reinterpret_cast<void**>(&agreed_), 2 * sizeof(*agreed_)), "cudaMalloc");
    cuda(cudaMallocHost(reinterpret_cast<void**>(&told_), 4 * sizeof(*told_)), "cudaMallocHost");
  }

  void run() {
    const Clock::time_point begin = Clock::now();
    const auto seconds = [begin] {
      return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    do {
      round();
      make_one_anew();
    } while (all_go_on(
        (options.soak_seconds == 0 || seconds() < static_cast<double>(options.soak_seconds)) &&
        (options.replays == 0 || replays_ < options.replays)));
    compare_everything();
    const double took = seconds();
    // All ranks have compared everything when this has ended; then any of them may be gone first,
    // of which nobody asks the communicator any more.
    ask_all(false);
    lanes_[0]->wait("the last operation");
    answer();
    for (const std::unique_ptr<SoakLane>& lane : lanes_) lane->leave();
    if (options.rank != 0) return;
    std::printf(
        "soak of %d ranks, seed %llu: %llu replays (%llu as single calls), %llu operations, "
        "%llu of them compared, %.1f s\n",
        options.ranks, ull(options.seed), ull(replays_), ull(called_), ull(operations_),
        ull(compared_), took);
  }

 private:
  // One replay, as all ranks know it. What one rank runs from a graph all do: see arclient.h.
  struct Turn {
    std::size_t chain = 0;
    std::uint32_t pattern = 0;
    bool calls = false;  // instead of replaying
  };

  static unsigned long long ull(std::uint64_t value) { return value; }
  std::uint64_t own(std::uint64_t below) { return own_() % below; }

  // No rank knows where the others are; in every step even ranks call one communicator first, odd
  // ones the other.
  void round() {
    for (int step = 0; step < kRoundsSteps; ++step) {
      std::array<Turn, kLanes> turns;
      for (Turn& turn : turns) {
        turn.chain = shared_() % SoakLane::kChains;
        turn.pattern = static_cast<std::uint32_t>(shared_() % SoakChain::kPatterns);
        turn.calls = shared_() % 16 == 0;
      }
      for (std::size_t i = 0; i < kLanes; ++i) {
        if (own(128) == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(own(kLongestSleepUs)));
        const std::size_t which = (i + static_cast<std::size_t>(options.rank)) % kLanes;
        current_replay = replays_ + which + 1;  // the same number on all ranks
        replay(*lanes_[which], turns[which]);
      }
      replays_ += kLanes;
    }
    settle("a round of replays");
  }

  void replay(SoakLane& lane, const Turn& turn) {
    SoakChain& chain = lane.chain(turn.chain);
    if (own(4) == 0) lane.change_stream();
    cudaStream_t stream = lane.stream();
    const bool looks = own(2) == 0;
    if (looks) chain.poison(stream);
    chain.fill(turn.pattern, stream);
    if (own(32) == 0)
      cuda(spin(static_cast<std::uint32_t>(own(kLongestSpinUs)), stream), "spinning");
    if (turn.calls) {
      chain.call(stream);
      ++called_;
    } else {
      chain.replay(stream);
    }
    operations_ += chain.operations();
    if (!looks) return;
    lane.look(turn.chain, current_replay, turn.pattern);
    compared_ += chain.operations();
  }

  // While nothing of this rank runs: it might wait for that. All ranks capture the same.
  void make_one_anew() {
    if (shared_() % 8 == 0) {
      SoakLane& lane = *lanes_[shared_() % kLanes];
      lane.chain(shared_() % SoakLane::kChains).capture(lane.stream());
    }
    if (own(8) == 0) lanes_[own(kLanes)]->chain(own(SoakLane::kChains)).instantiate();
  }

  // Whether all ranks want to; waits for all of them.
  bool all_go_on(bool wants) {
    ask_all(wants);
    settle("agreeing whether to go on");
    return answer();
  }

  void ask_all(bool wants) {
    cudaStream_t stream = lanes_[0]->stream();
    told_[0] = wants ? 0 : 1;
    told_[1] = static_cast<std::int32_t>(replays_);
    told_[2] = told_[3] = -1;
    cuda(cudaMemcpyAsync(agreed_, told_, 2 * sizeof(*told_), cudaMemcpyDefault, stream),
         "uploading");
    arc(arcAllReduce(agreed_, agreed_, 2, arcInt32, arcMax, lanes_[0]->comm(), stream),
        "arcAllReduce");
    cuda(cudaMemcpyAsync(told_ + 2, agreed_, 2 * sizeof(*told_), cudaMemcpyDefault, stream),
         "downloading");
  }

  bool answer() const {
    if (told_[3] != told_[1]) die("another rank is at replay " + std::to_string(told_[3]));
    return told_[2] == 0;
  }

  // By other means than those of the rounds: every graph with all of its inputs.
  void compare_everything() {
    for (const std::unique_ptr<SoakLane>& lane : lanes_) {
      for (std::size_t number = 0; number < SoakLane::kChains; ++number) {
        SoakChain& chain = lane->chain(number);
        for (std::uint32_t pattern = 0; pattern < SoakChain::kPatterns; ++pattern) {
          current_replay = ++replays_;
          chain.poison(lane->stream());
          chain.fill(pattern, lane->stream());
          chain.replay(lane->stream());
          settle("a last replay");
          operations_ += chain.operations();
          compared_ += chain.compare_on_host(pattern, lane->stream());
        }
      }
    }
  }

  void settle(const char* what) {
    for (const std::unique_ptr<SoakLane>& lane : lanes_) lane->settle(what);
  }

  std::mt19937_64 shared_, own_;  // of all ranks alike; of this one
  std::array<std::unique_ptr<SoakLane>, kLanes> lanes_;
  std::int32_t *agreed_ = nullptr, *told_ = nullptr;  // on the GPU; pinned: what is told, is heard
  std::uint64_t replays_ = 0, called_ = 0, operations_ = 0, compared_ = 0;
};

}  // namespace

void soak(arcUniqueId id) {
  Soak(id).run();
}

}  // namespace arcomm::gpu

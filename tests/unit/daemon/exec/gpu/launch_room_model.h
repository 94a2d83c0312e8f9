// Launched operations of several communicators on GPUs that have too few SMs for all of them: a
// model of the GPUs, which begin blocks in whatever order does the most harm. Thread: one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "daemon/exec/gpu/launch_room.h"
#include "daemon/plan/in_stream_share.h"
#include "kernels/launch/launch_blocks.h"

namespace arcomm::launch_room_model {

// One operation: a kernel on each of its GPUs, whose block b waits for block b on all others.
struct Kernel {
  struct Part {
    std::uint32_t queue = 0;
    std::uint32_t begun = 0;        // blocks, in the order of their numbers
    std::set<std::uint32_t> fills;  // that have not ended
    bool is_called = true;          // else it waits behind a gate, without an SM
  };
  int communicator = 0;
  std::uint32_t blocks = 0;
  std::map<std::uint32_t, Part> parts;  // by GPU

  bool has_ended() const {
    return std::ranges::all_of(parts, [&](const auto& part) {
      return part.second.begun == blocks && part.second.fills.empty();
    });
  }
  bool is_called() const {
    return std::ranges::all_of(parts, [](const auto& part) { return part.second.is_called; });
  }
};

class ModelGpus {
 public:
  // SMs that launched kernels find where in-stream operations stand still and fill all they may.
  explicit ModelGpus(std::vector<std::uint32_t> free_sms) : free_(std::move(free_sms)) {
    preferred_.resize(free_.size());
  }
  void prefer(std::uint32_t gpu, std::vector<int> communicators) {
    preferred_[gpu] = std::move(communicators);
  }
  void launch(Kernel* kernel) {
    for (auto& [gpu, part] : kernel->parts) queues_[{gpu, part.queue}].push_back(kernel);
  }
  void withdraw(Kernel* kernel) {
    for (auto& [gpu, part] : kernel->parts) {
      free_[gpu] += static_cast<std::uint32_t>(part.fills.size());
      std::erase(queues_[{gpu, part.queue}], kernel);
    }
  }
  // Until nothing moves any more.
  void run() {
    while (begin_blocks() || end_blocks()) {
    }
  }

 private:
  bool begin_blocks() {
    bool any = false;
    for (std::uint32_t gpu = 0; gpu < free_.size(); ++gpu) {
      for (const int communicator : preferred_[gpu]) {
        for (auto& [place, queue] : queues_) {
          if (place.first != gpu || queue.empty() || queue.front()->communicator != communicator)
            continue;
          Kernel& first = *queue.front();
          Kernel::Part& part = first.parts.at(gpu);
          for (; part.is_called && part.begun < first.blocks && free_[gpu] > 0; any = true) {
            part.fills.insert(part.begun++);
            --free_[gpu];
          }
        }
      }
    }
    return any;
  }
  bool end_blocks() {
    bool any = false;
    for (auto& [place, queue] : queues_) {
      if (queue.empty()) continue;
      Kernel& first = *queue.front();
      const std::set<std::uint32_t> here = first.parts.at(place.first).fills;
      for (const std::uint32_t block : here) {
        if (!std::ranges::all_of(
                first.parts, [&](const auto& part) { return part.second.fills.contains(block); }))
          continue;
        for (auto& [gpu, part] : first.parts) {
          part.fills.erase(block);
          ++free_[gpu];
        }
        any = true;
      }
    }
    for (auto& [place, queue] : queues_) {
      while (!queue.empty()) {
        const Kernel::Part& part = queue.front()->parts.at(place.first);
        if (part.begun < queue.front()->blocks || !part.fills.empty()) break;
        queue.pop_front();
        any = true;
      }
    }
    return any;
  }

  std::vector<std::uint32_t> free_;
  std::vector<std::vector<int>> preferred_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<Kernel*>> queues_;  // by GPU, queue
};

// Communicators that call one operation after the other, some of them launched before the call.
class Node {
 public:
  struct Shape {
    std::vector<std::uint32_t> sms;        // of each GPU
    std::vector<std::uint32_t> in_stream;  // that clients may fill there
    bool with_room = true;                 // false: as it was
  };
  Node(Shape shape, unsigned seed) : shape_(std::move(shape)), random_(seed), gpus_(free_sms()) {
    for (const std::uint32_t sms : shape_.sms) room_.add_gpu(sms);
    for (std::uint32_t gpu = 0; gpu < shape_.sms.size(); ++gpu) {
      LaunchPlace lender{.parts = {{.gpu = gpu}}};
      room_.lend(lender, shape_.in_stream[gpu]);
      EXPECT_TRUE(room_.has_lent(lender));
    }
  }

  void add_communicator(const std::vector<LaunchPlace::Part>& parts) {
    std::uint32_t fewest = ~0U;
    for (const auto& part : parts) fewest = std::min(fewest, shape_.sms[part.gpu]);
    members_.push_back(std::make_unique<Member>());
    members_.back()->place.parts = parts;
    members_.back()->most_blocks = most_launched_blocks(fewest, kSparedSms);
  }
  // Each has called so many operations and all have ended; false: nothing moves any more.
  bool serve(int operations) {
    for (int turn = 0; turn < operations * 200; ++turn) {
      shuffle();
      bool all_done = true;
      for (std::size_t i = 0; i < members_.size(); ++i) {
        Member& member = *members_[i];
        if (member.done < operations) all_done = false;
        if (member.done < operations) act(member, static_cast<int>(i));
      }
      if (all_done) return true;
      gpus_.run();
      for (auto& member : members_) settle(*member);
    }
    return false;
  }

 private:
  struct Member {
    LaunchPlace place;
    std::uint32_t most_blocks = 0;
    std::uint32_t wanted = 0;  // blocks of what all ranks have called, and that is not launched
    std::unique_ptr<Kernel> kernel;
    int done = 0;
  };

  std::vector<std::uint32_t> free_sms() const {
    std::vector<std::uint32_t> free;
    for (std::size_t gpu = 0; gpu < shape_.sms.size(); ++gpu) {
      const std::uint32_t others = kResidentSms + shape_.in_stream[gpu];
      free.push_back(shape_.sms[gpu] > others ? shape_.sms[gpu] - others : 1);
    }
    return free;
  }
  void shuffle() {
    std::vector<int> order(members_.size());
    std::iota(order.begin(), order.end(), 0);
    for (std::uint32_t gpu = 0; gpu < shape_.sms.size(); ++gpu) {
      std::ranges::shuffle(order, random_);
      gpus_.prefer(gpu, order);
    }
  }
  void act(Member& member, int communicator) {
    if (member.kernel != nullptr) {
      for (auto& [gpu, part] : member.kernel->parts) part.is_called |= random_() % 3 == 0;
      return;
    }
    if (member.wanted == 0 && random_() % 4 == 0) return;
    const bool is_ahead = member.wanted == 0 && random_() % 3 == 0;
    if (member.wanted == 0)
      member.wanted = 1 + static_cast<std::uint32_t>(random_()) % member.most_blocks;
    const bool is_in =
        !shape_.with_room || (is_ahead ? room_.enter_ahead(member.place, member.wanted)
                                       : room_.enter(member.place, member.wanted));
    if (is_in) return launch(member, communicator, is_ahead);
    if (is_ahead) {
      member.wanted = 0;
      return;
    }
    for (auto& other : members_) {
      if (other->kernel == nullptr || other->kernel->is_called() ||
          !LaunchRoom::is_in_the_way(other->place, member.place))
        continue;
      gpus_.withdraw(other->kernel.get());
      other->kernel.reset();
      room_.leave(other->place);
    }
  }
  void launch(Member& member, int communicator, bool is_ahead) {
    member.kernel = std::make_unique<Kernel>();
    member.kernel->communicator = communicator;
    member.kernel->blocks = std::exchange(member.wanted, 0);
    for (const auto& part : member.place.parts)
      member.kernel->parts[part.gpu] = {.queue = part.queue, .fills = {}, .is_called = !is_ahead};
    gpus_.launch(member.kernel.get());
  }
  void settle(Member& member) {
    if (member.kernel == nullptr || !member.kernel->has_ended()) return;
    member.kernel.reset();
    ++member.done;
    room_.leave(member.place);
  }

  const Shape shape_;
  std::mt19937 random_;
  LaunchRoom room_;
  ModelGpus gpus_;
  std::vector<std::unique_ptr<Member>> members_;
};

// Three communicators over each pair of three GPUs, and two over all: as many as can wait for each
// other in a circle.
inline void add_circle(Node& node, bool share_queues) {
  const auto queue = [&](std::uint32_t own) { return share_queues && own % 2 == 0 ? 0U : own; };
  node.add_communicator({{0, queue(1)}, {1, queue(1)}});
  node.add_communicator({{1, queue(2)}, {2, queue(2)}});
  node.add_communicator({{2, queue(3)}, {0, queue(3)}});
  node.add_communicator({{0, queue(4)}, {1, queue(4)}, {2, queue(4)}});
  node.add_communicator({{0, queue(6)}, {1, queue(6)}, {2, queue(5)}});
}

}  // namespace arcomm::launch_room_model

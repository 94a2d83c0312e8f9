// Every wait of every block has an end: an operation is stopped after each of its moves, and then
// either aborted or left alone until its time is over. What holds for the twins is what the kernels
// are written to (kernels/device/device_fifo.cuh); on GPUs, device_fifo_gpu_test.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/proxy/fifo/fifo_words.h"
#include "tests/unit/daemon/proxy/proxy_world.h"

namespace arcomm::proxy {
namespace {

constexpr std::uint64_t kOperationNs = 1000;

// One operation of all nodes, in which everything moves in its turn.
class Operation {
 public:
  explicit Operation(const WorldPlan& plan)
      : world_(plan, {.is_eager = true, .most_sent = 1, .hesitates = nullptr}) {
    for (std::uint32_t number = 0; number < plan.nodes; ++number) {
      WorldNode& node = *world_.nodes[number];
      engines_.push_back(std::make_unique<ProxyEngine>(node));
      node.connect(*engines_[number],
                   [&](std::uint32_t peer) { return world_.wire(number, peer); });
      node.begin(kOperationNs, ~std::uint64_t{0}, clock_, wake_);
      for (HostBlock& block : node.blocks) blocks_.push_back(&block);
    }
  }

  // One engine or block, the next in turn.
  void move_one() {
    const std::size_t which = moves_++ % (engines_.size() + blocks_.size());
    if (which < engines_.size()) {
      engines_[which]->progress(now_ns_);
    } else {
      blocks_[which - engines_.size()]->resume();
    }
  }
  bool has_ended() const {
    for (const HostBlock* block : blocks_) {
      if (!block->has_ended()) return false;
    }
    return true;
  }
  // Each block goes on to a wait in vain, at which its clock starts.
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (HostBlock* block : blocks_) moved |= block->resume();
    }
  }
  // Blocks alone. How many ended with `code`; -1: one does not end.
  int end_blocks(ErrorCode code) {
    int count = 0;
    for (HostBlock* block : blocks_) {
      // What is there already may still be taken, a wait at a time.
      for (int i = 0; i < 200 && !block->has_ended(); ++i) block->resume();
      if (!block->has_ended()) return -1;
      if (block->verdict() == code) {
        ++count;
      } else {
        EXPECT_EQ(block->verdict(), ErrorCode::Ok);
      }
    }
    return count;
  }
  void abort() {
    for (auto& engine : engines_)
      engine->fail_group(1, error(ErrorCode::Aborted, Reason::RemoteAborted, "no more"));
  }
  void let_time_pass() { now_ns_ += kOperationNs; }
  // Words of kernels that gave up; each names its FIFO's peer.
  int failed_words() const {
    int count = 0;
    for (const auto& node : world_.nodes) {
      for (std::size_t i = 0; i < node->words.size(); ++i) {
        if (node->words[i].failed == 0) continue;
        ++count;
        EXPECT_EQ(done_from(node->words[i].failed).culprit_rank,
                  static_cast<int>(i / 2 % world_.plan.nodes));
      }
    }
    return count;
  }

 private:
  std::uint64_t now_ns_ = 1;
  std::function<std::uint64_t()> clock_ = [this] { return now_ns_; };
  std::function<void()> wake_ = [] {};
  ProxyWorld world_;
  std::vector<std::unique_ptr<ProxyEngine>> engines_;
  std::vector<HostBlock*> blocks_;
  std::size_t moves_ = 0;
};

// `stop` is told the operation that was stopped; its moves are counted up until it ends by itself.
template <typename Stop>
void stop_after_each_move(Stop stop) {
  for (const Shape shape : {Shape::Exchange, Shape::Ring, Shape::BothWays}) {
    for (const SlotMode mode : {SlotMode::Normal, SlotMode::Offset, SlotMode::Pointer}) {
      for (const auto& [is_in_place, codec] :
           {std::pair{false, Codec::None}, {true, Codec::None}, {true, Codec::Q6}}) {
        if (codec != Codec::None && shape != Shape::Exchange) continue;
        SCOPED_TRACE(testing::Message()
                     << "shape " << static_cast<int>(shape) << ", mode " << static_cast<int>(mode)
                     << ", in place " << is_in_place << ", codec " << text_of(codec));
        const std::uint64_t chunk = codec == Codec::None ? 16 : kCodecBlock;
        bool has_ended = false;
        int stopped = 0;
        for (int moves = 0; !has_ended; moves += 1 + moves / 40) {
          Operation operation({.shape = shape,
                               .mode = mode,
                               .nodes = 3,
                               .count = chunk * 100,
                               .chunk_elements = chunk,
                               .share = 2,
                               .is_in_place = is_in_place,
                               .codec = codec});
          for (int i = 0; i < moves; ++i) operation.move_one();
          has_ended = operation.has_ended();
          ASSERT_LT(moves, 100'000) << "it hangs by itself";
          const int ended = stop(operation);
          ASSERT_GE(ended, 0) << "a block waits for ever after " << moves << " moves";
          if (has_ended) {
            ASSERT_EQ(ended, 0);
          }
          stopped += ended;
        }
        EXPECT_GT(stopped, 50);
      }
    }
  }
}

TEST(HostWaits, AnAbortEndsEachOfThem) {
  stop_after_each_move([](Operation& operation) {
    operation.abort();
    const int ended = operation.end_blocks(ErrorCode::Aborted);
    EXPECT_EQ(operation.failed_words(), 0) << "the proxy knows already";
    return ended;
  });
}

TEST(HostWaits, TheTimeoutEndsEachOfThemAndTheFifoSaysForWhomItWas) {
  stop_after_each_move([](Operation& operation) {
    operation.settle();
    operation.let_time_pass();
    const int ended = operation.end_blocks(ErrorCode::DeadlineExceeded);
    if (ended > 0) {
      EXPECT_GT(operation.failed_words(), 0);
    }
    return ended;
  });
}

}  // namespace
}  // namespace arcomm::proxy

#include "tests/unit/daemon/proxy/schedule.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <sstream>
#include <vector>

namespace arcomm::proxy {
namespace {

constexpr std::uint64_t kTurnNs = 1000;
constexpr std::uint64_t kTimeoutNs = 20'000'000'000;
// Nothing has moved for so many turns: everybody gets some, so that slow ones are not taken for
// ones that wait. Where nobody moves then, what is to come comes with time alone.
constexpr std::uint64_t kStill = 2000;
constexpr int kTurnsOfEach = 200;
constexpr std::uint64_t kMostTurns = 3'000'000;

// The same numbers everywhere, which the standard's distributions do not promise.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31);
  }
  std::uint64_t below(std::uint64_t end) { return next() % end; }
  std::uint64_t between(std::uint64_t first, std::uint64_t last) {
    return first + below(last - first + 1);
  }

 private:
  std::uint64_t state_;
};

class Schedule {
 public:
  explicit Schedule(const SchedulePlan& plan)
      : plan_(plan),
        random_(plan.seed),
        world_(plan.world, {.is_eager = false, .most_sent = 1 + plan.seed % 6, .hesitates = [this] {
                              return hesitates_ && random_.below(4) == 0;
                            }}) {
    for (std::uint32_t node = 0; node < nodes(); ++node) {
      engines_.push_back(std::make_unique<ProxyEngine>(*world_.nodes[node]));
      world_.nodes[node]->connect(*engines_[node],
                                  [&](std::uint32_t peer) { return world_.wire(node, peer); });
    }
    victim_ = static_cast<std::uint32_t>(random_.below(nodes()));
    // Some are a hundred times slower than others.
    for (std::uint32_t i = 0; i < agents(); ++i) {
      const std::uint64_t share = std::uint64_t{1} << random_.below(7);
      for (std::uint64_t n = 0; n < share; ++n) turns_of_.push_back(i);
    }
  }

  Outcome run() {
    for (; !is_over(); ++outcome_.turns) {
      if (outcome_.turns == kMostTurns) {
        wrong("it hangs");
        break;
      }
      if (outcome_.turns == plan_.fault_turn) bring_fault();
      now_ns_ += kTurnNs;
      const bool moved = move(turns_of_[random_.below(turns_of_.size())]);
      still_ = moved ? 0 : still_ + 1;
      if (still_ == kStill) {
        if (!anybody_moves()) now_ns_ += kTimeoutNs / 4;
        still_ = 0;
      }
    }
    if (outcome_.wrong.empty()) finish();
    return outcome_;
  }

 private:
  std::uint32_t nodes() const { return plan_.world.nodes; }
  // Engines, kernels, links.
  std::uint32_t agents() const { return 2 * nodes() + nodes() * (nodes() - 1) / 2; }

  bool anybody_moves() {
    for (int i = 0; i < kTurnsOfEach; ++i) {
      for (std::uint32_t agent = 0; agent < agents(); ++agent) {
        if (move(agent)) return true;
      }
    }
    return false;
  }

  bool move(std::uint32_t agent) {
    if (agent < nodes()) return agent != frozen_ && engines_[agent]->progress(now_ns_);
    if (agent < 2 * nodes()) return run_kernel(agent - nodes());
    std::uint32_t link = agent - 2 * nodes();
    for (const auto& there : world_.links) {
      if (there == nullptr || link-- != 0) continue;
      return there->move_one([this] { return random_.next(); });
    }
    return false;
  }

  // One block of the node's kernel, or the next kernel.
  bool run_kernel(std::uint32_t number) {
    WorldNode& node = *world_.nodes[number];
    if (node.blocks.empty()) {
      if (!may_begin(node)) return false;
      node.begin(kTimeoutNs, now_ns_ + kTimeoutNs, clock_, wake_);
      return true;
    }
    if (move_early(node, number)) return true;
    const auto which = random_.below(node.blocks.size());
    if (number == victim_ && which == dead_block_) return false;
    const bool moved = node.blocks[which].resume();
    if (!std::all_of(node.blocks.begin(), node.blocks.end(),
                     [](const HostBlock& block) { return block.has_ended(); })) {
      return moved;
    }
    if (node.is_leaving && node.failures.empty() && number != frozen_) {
      engines_[number]->forget_early(1);
      node.launch();
      return true;
    }
    settle(node);
    return true;
  }

  // The order of a kernel that was launched before it; or it is to end, and begins again.
  bool move_early(WorldNode& node, std::uint32_t number) {
    if (node.is_ordered || node.is_leaving || !node.failures.empty() || number == frozen_)
      return false;
    // Who launches one early has seen all before it settled.
    if (!node.is_settled()) return false;
    const std::uint64_t which = random_.below(16);
    if (which == 0) node.order(now_ns_ + kTimeoutNs);
    if (which == 1) {
      engines_[number]->end_early(1);
      node.is_leaving = true;
    }
    return which < 2;
  }

  bool may_begin(const WorldNode& node) const {
    return node.operations < plan_.world.operations && node.failures.empty() &&
           !gave_up_[number_of(node)];
  }
  std::size_t number_of(const WorldNode& node) const {
    for (std::size_t i = 0; i < world_.nodes.size(); ++i) {
      if (world_.nodes[i].get() == &node) return i;
    }
    return 0;
  }

  // A kernel has ended.
  void settle(WorldNode& node) {
    const bool is_well =
        std::all_of(node.blocks.begin(), node.blocks.end(),
                    [](const HostBlock& block) { return block.verdict() == ErrorCode::Ok; });
    if (is_well) {
      ++outcome_.succeeded;
      if (const std::string why = node.check(); !why.empty()) wrong("reported as success: " + why);
    } else {
      ++outcome_.failed;
      gave_up_[number_of(node)] = true;
      if (plan_.fault == Fault::None) wrong("failed without a fault" + text_of_verdicts(node));
    }
    node.blocks.clear();
  }

  static std::string text_of_verdicts(const WorldNode& node) {
    std::string text;
    for (const HostBlock& block : node.blocks) text += ", " + std::string(name_of(block.verdict()));
    return node.failures.empty() ? text : text + ": " + node.failures.front();
  }

  bool is_over() const {
    if (!outcome_.wrong.empty()) return true;
    for (std::uint32_t number = 0; number < nodes(); ++number) {
      const WorldNode& node = *world_.nodes[number];
      if (!node.blocks.empty() && !only_dead_left(number)) return false;
      if (node.blocks.empty() && may_begin(node)) return false;
      // The proxy knows the end of each operation by itself.
      if (number != frozen_ && engines_[number]->is_open()) return false;
    }
    return true;
  }
  bool only_dead_left(std::uint32_t number) const {
    if (number != victim_ || !dead_block_) return false;
    const auto& blocks = world_.nodes[number]->blocks;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (i != dead_block_ && !blocks[i].has_ended()) return false;
    }
    return true;
  }

  void bring_fault() {
    WorldNode& node = *world_.nodes[victim_];
    switch (plan_.fault) {
      case Fault::None:
        return;
      case Fault::Abort:
        engines_[victim_]->fail_group(
            1, error(ErrorCode::Aborted, Reason::RemoteAborted, "the test aborts"));
        return;
      case Fault::Cut:
        world_.link(victim_, (victim_ + 1) % nodes()).cut();
        return;
      case Fault::Frozen:
        frozen_ = victim_;
        return;
      case Fault::DeadBlock:
        if (!node.blocks.empty()) dead_block_ = random_.below(node.blocks.size());
        return;
      case Fault::Garbage:
        return store_garbage(node.words[random_.below(node.words.size())], random_.below(2) == 0);
      case Fault::ShortChunk:
        world_.link(victim_, (victim_ + 1) % nodes()).shorten_next();
        return;
    }
  }

  // Into one of the words that kernels write.
  void store_garbage(DeviceFifo& fifo, bool is_entry) {
    FifoEntry& entry = fifo.slots[random_.below(kFifoSteps)].of_kernel;
    std::uint64_t* words[] = {&fifo.failed,   &entry.size_word, &entry.sequence, &entry.offset,
                              &entry.address, &fifo.granted,    &fifo.filled};
    // Of granted and filled one is the proxy's own.
    const bool sends =
        static_cast<std::size_t>(&fifo - world_.nodes[victim_]->words.data()) % 2 == 0;
    words[5] = sends ? &fifo.filled : &fifo.granted;
    *words[is_entry ? 1 + random_.below(4) : (random_.below(2) == 0 ? 0 : 5)] = random_.next();
  }

  void finish() {
    for (const auto& link : world_.links) {
      if (link != nullptr && !link->violations().empty()) wrong(link->violations().front());
    }
    const std::uint32_t all = nodes() * plan_.world.operations;
    if (plan_.fault == Fault::None) {
      if (outcome_.succeeded != all) wrong("not all operations ran");
      for (const auto& node : world_.nodes) {
        if (!node->failures.empty()) wrong("the proxy failed: " + node->failures.front());
      }
    }
    // All lets go: what is left in the wires is taken back.
    for (std::uint32_t node = 0; node < nodes(); ++node) {
      engines_[node]->fail_group(1, error(ErrorCode::Cancelled, Reason::None, "the end"));
      for (int i = 0; i < 10000 && engines_[node]->fifos() != 0; ++i) {
        engines_[node]->progress(now_ns_);
        for (const FifoId fifo : world_.nodes[node]->fifos) (void)engines_[node]->remove(fifo);
      }
      if (engines_[node]->fifos() != 0) wrong("a FIFO does not let go");
    }
  }

  void wrong(const std::string& what) {
    if (outcome_.wrong.empty()) outcome_.wrong = what;
  }

  const SchedulePlan plan_;
  Random random_;
  bool hesitates_ = true;
  ProxyWorld world_;
  std::vector<std::unique_ptr<ProxyEngine>> engines_;
  std::vector<std::uint32_t> turns_of_;  // an agent as often as it comes
  std::array<bool, 8> gave_up_{};
  std::uint64_t now_ns_ = 1;
  std::function<std::uint64_t()> clock_ = [this] { return now_ns_; };
  std::function<void()> wake_ = [] {};
  std::uint64_t still_ = 0;
  std::uint32_t victim_ = 0;
  std::optional<std::uint32_t> frozen_;
  std::optional<std::uint64_t> dead_block_;
  Outcome outcome_;
};

}  // namespace

SchedulePlan SchedulePlan::draw(std::uint64_t seed) {
  Random random(seed * 2 + 1);
  SchedulePlan plan;
  plan.seed = seed;
  WorldPlan& world = plan.world;
  world.shape = static_cast<Shape>(random.below(3));
  world.mode = static_cast<SlotMode>(random.between(1, 3));
  constexpr DType kTypes[] = {DType::Float32, DType::BFloat16, DType::Float16, DType::Int32,
                              DType::Int64};
  world.dtype = kTypes[random.below(std::size(kTypes))];
  world.is_wide = random.below(2) == 0;
  world.nodes = static_cast<std::uint32_t>(random.between(2, 4));
  world.lanes = static_cast<std::uint32_t>(random.between(1, 3));
  world.operations = static_cast<std::uint32_t>(random.between(1, 3));
  world.chunk_elements = 64 * random.between(1, 2);
  // None at all, a part of a chunk, some, or more than the slots hold.
  constexpr std::uint64_t kMost[] = {3, 200, 2000, 8000};
  world.count = random.below(kMost[random.below(std::size(kMost))]);
  world.share = static_cast<std::uint32_t>(random.between(1, kFifoSteps));
  world.is_in_place = random.below(3) == 0;
  world.is_early =
      world.shape == Shape::Exchange && world.mode == SlotMode::Normal && seed % 3 != 0;
  plan.fault = static_cast<Fault>(random.below(2) == 0 ? 0 : random.below(kFaults));
  plan.fault_turn = random.below(random.below(2) == 0 ? 300 : 6000);
  const Codec codec = kRealCodecs[random.below(kRealCodecs.size())];
  if (world.shape == Shape::Exchange && codec_serves(codec, ReduceOp::Sum, world.dtype) &&
      random.below(2) == 0) {
    world.codec = codec;
    world.is_wide = false;
  }
  return plan;
}

std::string SchedulePlan::text() const {
  std::ostringstream text;
  text << seed << ' ' << unsigned{static_cast<std::uint8_t>(world.shape)} << ' '
       << static_cast<std::uint32_t>(world.mode) << ' '
       << unsigned{static_cast<std::uint8_t>(world.dtype)} << ' ' << world.is_wide << ' '
       << world.nodes << ' ' << world.lanes << ' ' << world.operations << ' ' << world.count << ' '
       << world.chunk_elements << ' ' << world.share << ' ' << world.is_in_place << ' '
       << unsigned{static_cast<std::uint8_t>(fault)} << ' ' << fault_turn << ' ' << world.is_early
       << ' ' << unsigned{static_cast<std::uint8_t>(world.codec)};
  return text.str();
}

SchedulePlan SchedulePlan::read(const std::string& text) {
  SchedulePlan plan;
  unsigned shape = 0, mode = 1, dtype = 2, fault = 0, codec = 0;
  std::istringstream in(text);
  in >> plan.seed >> shape >> mode >> dtype >> plan.world.is_wide >> plan.world.nodes >>
      plan.world.lanes >> plan.world.operations >> plan.world.count >> plan.world.chunk_elements >>
      plan.world.share >> plan.world.is_in_place >> fault >> plan.fault_turn >>
      plan.world.is_early >> codec;
  plan.world.shape = static_cast<Shape>(shape);
  plan.world.mode = static_cast<SlotMode>(mode);
  plan.world.dtype = static_cast<DType>(dtype);
  plan.fault = static_cast<Fault>(fault);
  plan.world.codec = static_cast<Codec>(codec);
  return plan;
}

Outcome run_schedule(const SchedulePlan& plan) {
  return Schedule(plan).run();
}

SchedulePlan shrink(SchedulePlan plan) {
  const auto smaller = [&plan](const std::function<void(SchedulePlan&)>& change) {
    SchedulePlan tried = plan;
    change(tried);
    // Other orders of the smaller world, too: one of some seeds may show it.
    for (std::uint64_t seed = plan.seed; seed < plan.seed + 20; ++seed) {
      tried.seed = seed;
      if (run_schedule(tried).wrong.empty()) continue;
      plan = tried;
      return true;
    }
    return false;
  };
  for (bool again = true; again;) {
    again = false;
    if (plan.fault != Fault::None) {
      again |= smaller([](SchedulePlan& tried) { tried.fault = Fault::None; });
    }
    if (plan.world.nodes > 2) again |= smaller([](SchedulePlan& tried) { --tried.world.nodes; });
    if (plan.world.lanes > 1) again |= smaller([](SchedulePlan& tried) { --tried.world.lanes; });
    if (plan.world.operations > 1) {
      again |= smaller([](SchedulePlan& tried) { --tried.world.operations; });
    }
    if (plan.world.count > 1) again |= smaller([](SchedulePlan& tried) { tried.world.count /= 2; });
    if (plan.fault_turn > 1 && plan.fault != Fault::None) {
      again |= smaller([](SchedulePlan& tried) { tried.fault_turn /= 2; });
    }
  }
  return plan;
}

}  // namespace arcomm::proxy

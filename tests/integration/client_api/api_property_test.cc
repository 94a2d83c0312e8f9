// Whatever type, operation, count, alignment, memory and way of calling: every rank receives what
// the scalar oracle says, bit for bit, and nothing outside of it is touched. A failure prints its
// case; ARCOMM_TEST_SEED=<case seed> starts with that one. ARCOMM_PROPERTY_SECONDS bounds the
// random part (default 20).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "client/include/arclient.h"
#include "tests/integration/client_api/api_case.h"
#include "tests/support/processes/daemon_process.h"

namespace arcomm {
namespace {

constexpr std::size_t kMemoryBytes = 1 << 20;  // of each kind, rank and direction
constexpr std::byte kUntouched{0xa5};
constexpr int kPlanStarts = 3;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Runs work(rank) for all ranks at once, one thread each.
void on_every_rank(int ranks, const std::function<void(int)>& work) {
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(work, rank);
}

// A failed call in this thread's words; "" if it succeeded.
std::string failure_of(arcResult_t result) {
  return result == arcSuccess
             ? ""
             : std::string(arcGetErrorString(result)) + ": " + arcGetLastError(nullptr);
}

// All ranks of one communicator as threads of this process, and their memory of every kind.
class Ranks {
 public:
  explicit Ranks(int ranks, std::size_t memory_bytes = kMemoryBytes)
      : comms_(static_cast<std::size_t>(ranks)), memory_(comms_.size()) {
    arcUniqueId id;
    EXPECT_EQ(arcGetUniqueId(&id), arcSuccess);
    on_every_rank(ranks, [&](int rank) {
      arcComm_t& comm = comms_[static_cast<std::size_t>(rank)];
      EXPECT_EQ(failure_of(arcCommInitRank(&comm, ranks, id, rank)), "");
    });
    for (auto& of_rank : memory_) {
      for (unsigned kind = 0; kind < kMemoryKinds; ++kind) {
        of_rank.send[kind] =
            std::make_unique<RankMemory>(static_cast<MemoryKind>(kind), memory_bytes);
        of_rank.recv[kind] =
            std::make_unique<RankMemory>(static_cast<MemoryKind>(kind), memory_bytes);
      }
    }
  }
  ~Ranks() {
    memory_.clear();
    on_every_rank(size(), [&](int rank) {
      EXPECT_EQ(failure_of(arcCommDestroy(comms_[static_cast<std::size_t>(rank)])), "");
    });
  }

  int size() const { return static_cast<int>(comms_.size()); }
  // Runs the case and checks every rank's memory.
  void check(const ApiCase& api_case);

 private:
  struct Memory {
    std::array<std::unique_ptr<RankMemory>, kMemoryKinds> send;
    std::array<std::unique_ptr<RankMemory>, kMemoryKinds> recv;
  };
  // One rank's part of a case: its pointers, and what the two memories must hold in the end.
  struct Part {
    arcComm_t comm = nullptr;
    std::byte* send = nullptr;
    std::byte* recv = nullptr;
    std::string failure;
  };
  void place(const ApiCase& api_case, std::size_t rank, const Bytes& input, Part& part) const;
  static void call(const ApiCase& api_case, const Bytes& input, Part& part);
  static void call_grouped(const ApiCase& api_case, std::vector<Part>& parts);
  void check_memory(const ApiCase& api_case, std::size_t rank, const Part& part, const Bytes& input,
                    const Bytes& expected) const;
  RankMemory& send_memory(const ApiCase& c, std::size_t rank) const {
    return *memory_[rank].send[static_cast<std::size_t>(c.placements[rank].send_kind)];
  }
  RankMemory& recv_memory(const ApiCase& c, std::size_t rank) const {
    return c.placements[rank].is_in_place
               ? send_memory(c, rank)
               : *memory_[rank].recv[static_cast<std::size_t>(c.placements[rank].recv_kind)];
  }

  std::vector<arcComm_t> comms_;
  std::vector<Memory> memory_;
};

arcDataType_t type_of(const ApiCase& api_case) {
  return static_cast<arcDataType_t>(api_case.dtype);
}
arcRedOp_t op_of(const ApiCase& api_case) {
  return static_cast<arcRedOp_t>(api_case.op);
}

void Ranks::place(const ApiCase& api_case, std::size_t rank, const Bytes& input, Part& part) const {
  const Placement& placement = api_case.placements[rank];
  const std::size_t element = size_of(api_case.dtype);
  RankMemory& send = send_memory(api_case, rank);
  RankMemory& recv = recv_memory(api_case, rank);
  // Filling a megabyte for a case of four bytes is most of its time: only the surroundings that a
  // stray write would hit first are prepared and looked at.
  const std::size_t window = std::min(send.bytes(), input.size() + 4 * kLargestOffset * element);
  std::memset(send.data(), static_cast<int>(kUntouched), window);
  std::memset(recv.data(), static_cast<int>(kUntouched), window);
  part.comm = comms_[rank];
  part.send = send.data() + placement.send_offset * element;
  part.recv = placement.is_in_place ? part.send : recv.data() + placement.recv_offset * element;
  if (!input.empty()) std::memcpy(part.send, input.data(), input.size());
}

void Ranks::call(const ApiCase& api_case, const Bytes& input, Part& part) {
  switch (api_case.shape) {
    case CallShape::Blocking:
      part.failure =
          failure_of(arcAllReduce(part.send, part.recv, api_case.count, type_of(api_case),
                                  op_of(api_case), part.comm, nullptr));
      return;
    case CallShape::Asynchronous: {
      arcTicket_t ticket = 0;
      part.failure =
          failure_of(arcAllReduceAsync(part.send, part.recv, api_case.count, type_of(api_case),
                                       op_of(api_case), part.comm, nullptr, &ticket));
      if (!part.failure.empty()) return;
      if (api_case.seed % 2 == 0) {
        part.failure = failure_of(arcWait(ticket, 0));
        return;
      }
      arcResult_t result = arcInProgress;
      while ((result = arcTest(ticket)) == arcInProgress) std::this_thread::yield();
      part.failure = failure_of(result);
      return;
    }
    case CallShape::Planned: {
      arcPlan_t plan = nullptr;
      part.failure =
          failure_of(arcPlanCreateAllReduce(&plan, part.send, part.recv, api_case.count,
                                            type_of(api_case), op_of(api_case), part.comm));
      for (int start = 0; start < kPlanStarts && part.failure.empty(); ++start) {
        if (!input.empty())
          std::memcpy(part.send, input.data(), input.size());  // in place spent it
        part.failure = failure_of(arcPlanStart(plan, nullptr));
        if (part.failure.empty()) part.failure = failure_of(arcPlanWait(plan, 0));
      }
      const std::string at_end = plan != nullptr ? failure_of(arcPlanDestroy(plan)) : "";
      if (part.failure.empty()) part.failure = at_end;
      return;
    }
    case CallShape::Grouped:
      part.failure = "one rank's part of a group is not a call of its own";
      return;
  }
}

void Ranks::call_grouped(const ApiCase& api_case, std::vector<Part>& parts) {
  parts[0].failure = failure_of(arcGroupStart());
  for (Part& part : parts) {
    part.failure += failure_of(arcAllReduce(part.send, part.recv, api_case.count, type_of(api_case),
                                            op_of(api_case), part.comm, nullptr));
  }
  parts[0].failure += failure_of(arcGroupEnd());
}

void Ranks::check_memory(const ApiCase& api_case, std::size_t rank, const Part& part,
                         const Bytes& input, const Bytes& expected) const {
  const std::size_t element = size_of(api_case.dtype);
  const auto holds = [&](const RankMemory& memory, const std::byte* at, const Bytes& bytes,
                         const char* name) {
    const std::size_t window =
        std::min(memory.bytes(), bytes.size() + 4 * kLargestOffset * element);
    const auto offset = static_cast<std::size_t>(at - memory.data());
    for (std::size_t i = 0; i < window; ++i) {
      const bool is_inside = i >= offset && i - offset < bytes.size();
      const std::byte wanted = is_inside ? bytes[i - offset] : kUntouched;
      if (memory.data()[i] == wanted) continue;
      ADD_FAILURE() << api_case << "\nrank " << rank << ", " << name << ": byte " << i << " ("
                    << (is_inside ? "in element " + std::to_string((i - offset) / element)
                                  : "outside of the data")
                    << ") is " << static_cast<int>(memory.data()[i]) << ", not "
                    << static_cast<int>(wanted);
      return;
    }
  };
  holds(recv_memory(api_case, rank), part.recv, expected, "result");
  if (!api_case.placements[rank].is_in_place)
    holds(send_memory(api_case, rank), part.send, input, "input");
}

void Ranks::check(const ApiCase& api_case) {
  const std::vector<Bytes> inputs = inputs_of(api_case);
  const Bytes expected = expected_of(api_case, inputs);
  std::vector<Part> parts(comms_.size());
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    place(api_case, rank, inputs[rank], parts[rank]);
  if (api_case.shape == CallShape::Grouped) {
    call_grouped(api_case, parts);
  } else {
    on_every_rank(size(), [&](int rank) {
      call(api_case, inputs[static_cast<std::size_t>(rank)], parts[static_cast<std::size_t>(rank)]);
    });
  }
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    ASSERT_EQ(parts[rank].failure, "") << api_case << "\nrank " << rank;
    check_memory(api_case, rank, parts[rank], inputs[rank], expected);
  }
}

class ApiProperty : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_daemon = support::DaemonProcess::start();
    ASSERT_NE(shared_daemon, nullptr);
    shared_runtime_dir = shared_daemon->runtime_dir();
    arcConfig_t config = ARC_CONFIG_INITIALIZER;
    config.runtime_dir = shared_runtime_dir.c_str();
    config.timeout_ms = 60000;  // a sanitizer build on a busy machine
    ASSERT_EQ(failure_of(arcInit(&config)), "");
  }
  static void TearDownTestSuite() {
    EXPECT_EQ(failure_of(arcFinalize()), "");
    if (shared_daemon) shared_daemon->stop();
    shared_daemon.reset();
  }

  static inline std::unique_ptr<support::DaemonProcess> shared_daemon;
  static inline std::string shared_runtime_dir;
};

TEST_F(ApiProperty, EveryTypeAndOperationGivesTheOraclesBits) {
  Ranks ranks(3);
  for (unsigned dtype = 0; dtype < kDTypes; ++dtype) {
    for (unsigned op = 0; op < kReduceOps; ++op) {
      for (const std::size_t count : {0U, 1U, 17U, 1001U}) {
        ApiCase api_case = draw_case(1000 * dtype + 10 * op + count, ranks.size(), kMemoryBytes);
        api_case.dtype = static_cast<DType>(dtype);
        api_case.op = static_cast<ReduceOp>(op);
        api_case.count = count;
        ranks.check(api_case);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(ApiProperty, RandomCallsGiveTheOraclesBitsAndTouchNothingElse) {
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::seconds(number_from("ARCOMM_PROPERTY_SECONDS", 20));
  const std::uint64_t first_seed = number_from("ARCOMM_TEST_SEED", 20261121);
  std::map<int, std::unique_ptr<Ranks>> teams;
  constexpr int kSizes[] = {1, 2, 3, 4, 5, 8};
  std::uint64_t cases = 0;
  for (std::uint64_t seed = first_seed;
       std::chrono::steady_clock::now() < deadline && !HasFailure(); ++seed) {
    const int size = kSizes[seed % std::size(kSizes)];
    std::unique_ptr<Ranks>& team = teams[size];
    if (!team) team = std::make_unique<Ranks>(size);
    if (HasFailure()) return;
    team->check(draw_case(seed, size, kMemoryBytes));
    ++cases;
  }
  RecordProperty("cases", static_cast<int>(cases));
  std::printf("%llu random cases, seeds from %llu\n", static_cast<unsigned long long>(cases),
              static_cast<unsigned long long>(first_seed));
  EXPECT_GE(cases, 20U) << "too few to mean anything: is the machine overloaded?";
}

TEST_F(ApiProperty, SixtyFourRanksAgreeOnTheOraclesBits) {
  constexpr std::size_t kBytes = 1 << 14;
  Ranks ranks(64, kBytes);
  for (std::uint64_t seed = 1; seed <= 10 && !HasFailure(); ++seed)
    ranks.check(draw_case(seed, 64, kBytes));
}

}  // namespace
}  // namespace arcomm

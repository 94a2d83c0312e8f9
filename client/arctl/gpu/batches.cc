#include "client/arctl/gpu/batches.h"

namespace arcomm::arctl {

Batches batches_of(std::uint64_t bytes) {
  if (bytes <= (1 << 20)) return {.number = 101, .operations = 10 * kChain};
  if (bytes <= (16 << 20)) return {.number = 101, .operations = 2 * kChain};
  if (bytes <= (64 << 20)) return {.number = 51, .operations = kChain};
  if (bytes <= (256 << 20)) return {.number = 31, .operations = kChain};
  return {.number = 21, .operations = kChain};
}

std::uint32_t whole_chains(std::uint32_t operations, std::uint32_t chain) {
  return (operations + chain - 1) / chain * chain;
}

std::vector<Window> windows_of(std::uint64_t count, std::uint64_t element,
                               std::mt19937_64& random) {
  if (count * element <= kWholeBytes) return {{0, count}};
  const std::uint64_t part = count / kWindows, length = kWindowBytes / element;
  std::vector<Window> windows;
  for (std::uint64_t i = 0; i < kWindows; ++i) {
    const std::uint64_t slack = random() % (part - length + 1);
    windows.push_back({i == 0 ? 0 : i + 1 == kWindows ? count - length : i * part + slack, length});
  }
  return windows;
}

}  // namespace arcomm::arctl

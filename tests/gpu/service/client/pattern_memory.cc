#include "tests/gpu/service/client/pattern_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/gpu/service/client/client_options.h"

namespace arcomm::gpu {

void upload(const Pattern& pattern, std::byte* to, std::uint64_t count, cudaStream_t stream) {
  const std::uint64_t element = size_of(options.dtype);
  const auto copy = [&](std::uint64_t at, const std::byte* source, std::uint64_t length) {
    cuda(cudaMemcpyAsync(to + at * element, source, std::min(length, count - at) * element,
                         cudaMemcpyDefault, stream),
         "uploading");
  };
  copy(0, pattern.mine.data(), kPeriod);
  for (std::uint64_t done = kPeriod; done < count; done *= 2) copy(done, to, done);
}

std::optional<std::string> difference(const Pattern& pattern, const std::byte* got,
                                      std::uint64_t count) {
  const std::uint64_t element = size_of(options.dtype);
  for (std::uint64_t done = 0, length = 0; done < count; done += length) {
    const std::uint64_t place = done % kPeriod;
    length = std::min(count - done, kPeriod - place);
    const std::byte* const mine = got + done * element;
    const std::byte* const theirs = pattern.expected.data() + place * element;
    if (std::memcmp(mine, theirs, length * element) == 0) continue;
    for (std::uint64_t i = 0; i < length; ++i) {
      unsigned is = 0, must_be = 0;
      std::memcpy(&is, mine + i * element, element);
      std::memcpy(&must_be, theirs + i * element, element);
      if (is == must_be) continue;
      char text[96];
      const unsigned long long at = done + i;
      std::snprintf(text, sizeof(text), "element %llu is %#x and must be %#x", at, is, must_be);
      return text;
    }
  }
  return std::nullopt;
}

}  // namespace arcomm::gpu

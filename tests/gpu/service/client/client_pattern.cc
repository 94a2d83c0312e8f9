#include "tests/gpu/service/client/client_pattern.h"

#include <utility>

#include "tests/gpu/service/client/client_options.h"
#include "tests/gpu/service/sample.h"

namespace arcomm::gpu {

Pattern make_pattern(int number) {
  const Shape shape{.count = kPeriod, .dtype = options.dtype, .codec = options.codec};
  std::vector<Bytes> sent;
  sent.reserve(static_cast<std::size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank)
    sent.push_back(sent_by(rank, shape, static_cast<std::uint64_t>(number)));
  Bytes expected = reduced(shape, sent);
  return {std::move(sent[static_cast<std::size_t>(options.rank)]), std::move(expected)};
}

}  // namespace arcomm::gpu

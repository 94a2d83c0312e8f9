#include "client/examples/tensor_parallel_lm/model/matrix.h"

#include <algorithm>
#include <cstring>

namespace lm {
namespace {

#define LM_INLINE inline __attribute__((always_inline))

// Sixteen floats; the compiler splits them where the machine's registers are narrower.
using Lanes = float __attribute__((vector_size(64)));
constexpr std::size_t kLanes = 16;

// Rows begin anywhere, so that lanes in memory are aligned as a float is. By reference, as how a
// vector is returned depends on the machine.
LM_INLINE void load(const float* from, Lanes& lanes) {
  std::memcpy(&lanes, from, sizeof lanes);
}

// One block of the result is kept in registers while the inner dimension passes by.
template <std::size_t kRows, std::size_t kVectors>
LM_INLINE void block(const Product& product, std::size_t row, std::size_t column) {
  Lanes sum[kRows][kVectors];
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const float* c = product.c + (row + r) * product.c_stride + column + v * kLanes;
      sum[r][v] = Lanes{};
      if (product.accumulate) load(c, sum[r][v]);
    }
  }
  const float* a = product.a + row * product.a_row_stride;
  const float* b = product.b + column;
  for (std::size_t k = 0; k < product.inner; ++k) {
    Lanes right[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
      load(b + v * kLanes, right[v]);
    }
    for (std::size_t r = 0; r < kRows; ++r) {
      const float left = a[r * product.a_row_stride];
      for (std::size_t v = 0; v < kVectors; ++v) sum[r][v] += left * right[v];
    }
    a += product.a_column_stride;
    b += product.b_stride;
  }
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      float* c = product.c + (row + r) * product.c_stride + column + v * kLanes;
      std::memcpy(c, &sum[r][v], sizeof sum[r][v]);
    }
  }
}

template <std::size_t kRows>
LM_INLINE void row_of_blocks(const Product& product, std::size_t row) {
  std::size_t column = 0;
  for (; column + 2 * kLanes <= product.columns; column += 2 * kLanes) {
    block<kRows, 2>(product, row, column);
  }
  if (column + kLanes <= product.columns) {
    block<kRows, 1>(product, row, column);
    column += kLanes;
  }
  for (; column < product.columns; ++column) {
    for (std::size_t r = row; r < row + kRows; ++r) {
      float sum = product.accumulate ? product.c[r * product.c_stride + column] : 0.0F;
      for (std::size_t k = 0; k < product.inner; ++k) {
        sum += product.a[r * product.a_row_stride + k * product.a_column_stride] *
               product.b[k * product.b_stride + column];
      }
      product.c[r * product.c_stride + column] = sum;
    }
  }
}

LM_INLINE void multiply_blocks(const Product& product) {
  constexpr std::size_t kRows = 8;
  std::size_t row = 0;
  for (; row + kRows <= product.rows; row += kRows) row_of_blocks<kRows>(product, row);
  for (; row < product.rows; ++row) row_of_blocks<1>(product, row);
}

void multiply_portable(const Product& product) {
  multiply_blocks(product);
}
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void multiply_avx2(const Product& product) {
  multiply_blocks(product);
}
__attribute__((target("avx512f"))) void multiply_avx512(const Product& product) {
  multiply_blocks(product);
}
#endif

using Multiply = void (*)(const Product&);
Multiply best_for_this_machine() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return multiply_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return multiply_avx2;
#endif
  return multiply_portable;
}

}  // namespace

void multiply(const Product& product) {
  static const Multiply chosen = best_for_this_machine();
  chosen(product);
}

void transpose(const float* from, std::size_t from_stride, std::size_t rows, std::size_t columns,
               float* to) {
  constexpr std::size_t kTile =
      16;  // floats of a cache line: each line of both is touched once per tile
  for (std::size_t row = 0; row < rows; row += kTile) {
    for (std::size_t column = 0; column < columns; column += kTile) {
      for (std::size_t c = column; c < std::min(columns, column + kTile); ++c) {
        for (std::size_t r = row; r < std::min(rows, row + kTile); ++r) {
          to[c * rows + r] = from[r * from_stride + c];
        }
      }
    }
  }
}

}  // namespace lm

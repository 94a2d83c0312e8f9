// Dense float32 matrix product, row-major, on one core.
// Thread: stateless; calls on different outputs may run at the same time.
// Promise: an element of the result depends on its row and its column alone, never on how many
// other rows are computed
//   with it, and it is added up in index order. Two processes on one machine therefore get the same
//   bits.
#pragma once

#include <cstddef>

namespace lm {

// c[rows, columns] (+)= a[rows, inner] * b[inner, columns]. Strides are in elements; a may be read
// transposed by swapping its two strides.
struct Product {
  std::size_t rows = 0;
  std::size_t inner = 0;
  std::size_t columns = 0;
  const float* a = nullptr;
  std::size_t a_row_stride = 0;
  std::size_t a_column_stride = 1;
  const float* b = nullptr;
  std::size_t b_stride = 0;
  float* c = nullptr;
  std::size_t c_stride = 0;
  bool accumulate = false;
};
void multiply(const Product& product);

// to[columns, rows] = from[rows, columns] transposed.
void transpose(const float* from, std::size_t from_stride, std::size_t rows, std::size_t columns,
               float* to);

}  // namespace lm

#include "tests/gpu/kernels/network/node_seats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/host/reference.h"
#include "tests/gpu/kernels/coded_elements.h"
#include "tests/gpu/kernels/node/random_elements.h"

namespace arcomm::gpu {
NodeSeats::NodeSeats(const NetworkShape& shape)
    : shape_(shape),
      area_bytes_(first() + bytes() + kNodeGuard),
      part_bytes_((shape.chunk_elements * size_of(shape.partial_type()) + 15) / 16 * 16),
      parts_(shape.lanes * part_bytes_) {
  for (std::uint32_t seat = 0; seat < shape.seats; ++seat) {
    send_.push_back(std::make_unique<GpuMemory<std::byte>>(area_bytes_));
    recv_.push_back(std::make_unique<GpuMemory<std::byte>>(area_bytes_));
  }
}

std::size_t NodeSeats::first() const {
  return kNodeGuard + shape_.shift * size_of(shape_.dtype);
}

std::byte* NodeSeats::recv(std::uint32_t seat) const {
  return (is_in_place(seat) ? send_ : recv_)[seat]->data();
}

std::vector<std::byte> NodeSeats::prepare(std::mt19937_64& random, cudaStream_t stream) {
  std::vector<std::vector<std::byte>> inputs(shape_.seats);
  AllReduceArgs args = AllReduceArgs::among(shape_.seats, shape_.count, shape_.dtype, shape_.op);
  for (std::uint32_t seat = 0; seat < shape_.seats; ++seat) {
    if (shape_.codec != Codec::None) {
      inputs[seat] = Elements(static_cast<unsigned>(random())).make(shape_.dtype, shape_.count);
    } else {
      inputs[seat].resize(bytes() + 8);  // whole words
      fill(inputs[seat], shape_.dtype, random);
    }
    args.inputs[seat] = inputs[seat].data();
    std::vector<std::byte> image(area_bytes_, kNodePoison);
    for (GpuMemory<std::byte>* area : {recv_[seat].get(), send_[seat].get()}) {
      if (area == send_[seat].get() && bytes() != 0)
        std::memcpy(&image[first()], inputs[seat].data(), bytes());
      EXPECT_EQ(
          cudaMemcpyAsync(area->data(), image.data(), image.size(), cudaMemcpyDefault, stream),
          cudaSuccess);
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    }
  }
  std::vector<std::byte> partial(shape_.wire_bytes(shape_.count));
  args.codec = shape_.codec;
  args.stage = ReduceStage::Partial;
  args.num_outputs = 1;
  args.outputs[0] = partial.data();
  reference::all_reduce_range(args, 0, shape_.count);
  return partial;
}

NetworkSeats NodeSeats::seats() const {
  NetworkSeats seats{.count = shape_.seats,
                     .is_in_place = shape_.is_in_place,
                     .parts = parts_.data(),
                     .part_bytes = part_bytes_};
  for (std::uint32_t seat = 0; seat < shape_.seats; ++seat) {
    seats.send[seat] = send_[seat]->data() + first();
    seats.recv[seat] = recv(seat) + first();
  }
  return seats;
}

std::vector<std::byte> NodeSeats::read(std::uint32_t seat) const {
  std::vector<std::byte> all(area_bytes_);
  EXPECT_EQ(cudaMemcpy(all.data(), recv(seat), all.size(), cudaMemcpyDefault), cudaSuccess);
  return all;
}

std::vector<std::byte> NodeSeats::result() const {
  const std::vector<std::byte> all = read(0);
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first());
  return {begin, begin + static_cast<std::ptrdiff_t>(bytes())};
}

bool NodeSeats::are_alike() const {
  const std::vector<std::byte> right = read(0);
  const auto is_poison = [](std::byte byte) { return byte == kNodePoison; };
  const auto begin = right.begin() + static_cast<std::ptrdiff_t>(first());
  if (!std::all_of(right.begin(), begin, is_poison) ||
      !std::all_of(begin + static_cast<std::ptrdiff_t>(bytes()), right.end(), is_poison))
    return false;
  for (std::uint32_t seat = 1; seat < shape_.seats; ++seat) {
    if (read(seat) != right) return false;
  }
  return true;
}

}  // namespace arcomm::gpu

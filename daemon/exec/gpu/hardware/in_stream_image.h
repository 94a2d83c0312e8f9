// The in-stream kernels (kernels/in_stream/kernels.h) as clients get them: a memfd that nobody can
// change, of which each client has a descriptor. Thread: the worker's.
#pragma once

#include <cstddef>
#include <span>

#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

class InStreamImage {
 public:
  InStreamImage() = default;  // there is none
  static Result<InStreamImage> create(std::span<const std::byte> image);

  explicit operator bool() const { return static_cast<bool>(fd_); }
  Result<UniqueFd> export_fd() const;

 private:
  explicit InStreamImage(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace arcomm

// The in-stream kernels (kernels/in_stream/kernels.h) as clients get them: a memfd that nobody can
// change, of which each client has a descriptor. proto/gpu/in_stream_images.h says how it is laid
// out. Thread: the worker's.
#pragma once

#include "proto/gpu/in_stream_images.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

class InStreamImage {
 public:
  InStreamImage() = default;  // there is none
  static Result<InStreamImage> create(const InStreamImages& images);

  explicit operator bool() const { return static_cast<bool>(fd_); }
  Result<UniqueFd> export_fd() const;

 private:
  explicit InStreamImage(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace arcomm

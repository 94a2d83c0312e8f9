// A file that several processes have mapped, as this process has it: the one owner of such a
// mapping, on either side. Boost.Interprocess maps and unmaps; its exceptions end here. Move-only;
// any one thread at a time. The memory itself lives as long as anybody has it mapped or open, and
// the descriptor may be closed once it is mapped.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "proto/status.h"

namespace arcomm {

class SharedMapping {
 public:
  enum class Access : std::uint8_t {
    ReadWrite,
    ReadOnly,
    // As ReadOnly, and allowed where the file is sealed against writing: before Linux 6.7 such a
    // file cannot be mapped shared, not even for reading.
    ReadPrivate,
  };
  struct Options {
    std::uint64_t offset_bytes = 0;  // any: it need not be a page's
    std::uint64_t length_bytes = 0;
    Access access = Access::ReadWrite;
    bool is_prefaulted = false;          // every page is there and mapped once map() returns
    bool is_inherited = true;            // by children that are forked
    const char* what = "shared memory";  // as messages name it
  };

  // Refused is what would be a fault later: a range beyond the page of the file's last byte
  // (OutOfRange), none at all (InvalidArgument), a descriptor that does not allow the access
  // (FailedPrecondition). Whether the file can be cut off afterwards is for the caller to judge.
  static Result<SharedMapping> map(int fd, const Options& options);

  SharedMapping() = default;
  SharedMapping(SharedMapping&&) noexcept = default;
  SharedMapping& operator=(SharedMapping&&) noexcept = default;
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;
  ~SharedMapping() = default;

  explicit operator bool() const { return data() != nullptr; }
  // Exactly the bytes asked for. Null and 0 where nothing is mapped.
  std::byte* data() const { return static_cast<std::byte*>(region_.get_address()); }
  std::size_t bytes() const { return region_.get_size(); }

 private:
  explicit SharedMapping(boost::interprocess::mapped_region region) noexcept
      : region_(std::move(region)) {}

  boost::interprocess::mapped_region region_;
};

}  // namespace arcomm

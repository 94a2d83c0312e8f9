#include "proto/shared_mapping.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <boost/interprocess/exceptions.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

namespace arcomm {
namespace {

namespace ipc = boost::interprocess;

// What mapped_region wants of a thing that can be mapped.
struct Descriptor {
  int fd;
  ipc::mapping_handle_t get_mapping_handle() const {
    return ipc::ipcdetail::mapping_handle_from_file_handle(fd);
  }
};

ipc::mode_t mode_of(SharedMapping::Access access) {
  switch (access) {
    case SharedMapping::Access::ReadWrite:
      return ipc::read_write;
    case SharedMapping::Access::ReadOnly:
      return ipc::read_only;
    case SharedMapping::Access::ReadPrivate:
      return ipc::read_private;
  }
  return ipc::invalid_mode;
}

Status check(int fd, const SharedMapping::Options& options) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) {
    return error(ErrorCode::FailedPrecondition, Reason::BadValue, "cannot map ", options.what,
                 ": descriptor ", fd, ": ", std::strerror(errno));
  }
  if (options.length_bytes == 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "cannot map 0 bytes of ",
                 options.what, ": ask for 1 or more");
  }
  // The last page is there to its end, whatever part of it the file fills.
  const std::uint64_t page = ipc::mapped_region::get_page_size();
  const std::uint64_t end = (static_cast<std::uint64_t>(file.st_size) + page - 1) / page * page;
  if (options.offset_bytes > end || options.length_bytes > end - options.offset_bytes) {
    return error(ErrorCode::OutOfRange, Reason::OutOfBounds, "cannot map ", options.what,
                 ": bytes ", options.offset_bytes, " + ", options.length_bytes,
                 " are not inside the file's ", file.st_size, " bytes");
  }
  return {};
}

Error not_mapped(int why, const SharedMapping::Options& options) {
  if (why == EACCES || why == EPERM) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported, "cannot map ", options.what,
                 ": ", std::strerror(why),
                 ": the descriptor is not open for this access, or the file is sealed against it");
  }
  return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "cannot map ",
               options.length_bytes, " bytes of ", options.what, ": ", std::strerror(why),
               "; free memory, or raise vm.max_map_count or this process's limits");
}

}  // namespace

Result<SharedMapping> SharedMapping::map(int fd, const Options& options) {
  ARC_RETURN_IF_ERROR(check(fd, options));
  try {
    ipc::mapped_region region(Descriptor{fd}, mode_of(options.access),
                              static_cast<ipc::offset_t>(options.offset_bytes),
                              static_cast<std::size_t>(options.length_bytes), nullptr,
                              options.is_prefaulted ? MAP_POPULATE : ipc::default_map_options);
    if (!options.is_inherited) {
      const std::size_t lead = options.offset_bytes % ipc::mapped_region::get_page_size();
      ::madvise(static_cast<std::byte*>(region.get_address()) - lead, region.get_size() + lead,
                MADV_DONTFORK);
    }
    return SharedMapping(std::move(region));
  } catch (const ipc::interprocess_exception& failure) {
    return not_mapped(failure.get_native_error(), options);
  }
}

}  // namespace arcomm

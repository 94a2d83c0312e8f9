#include "client/src/session/communicator.h"

#include <cstring>
#include <memory>
#include <utility>

#include "client/include/arclient.h"
#include "client/src/c_api/config.h"
#include "client/src/c_api/entry_point.h"
#include "client/src/session/group.h"
#include "client/src/session/library.h"

namespace arcomm::client {
namespace {

static_assert(sizeof(arcUniqueId) == sizeof(UniqueId) && ARC_UNIQUE_ID_BYTES == 128);

Status create_communicator(arcComm_t* comm, int ranks, const UniqueId& id, int rank,
                           const CommunicatorConfig& config, std::shared_ptr<Gpu> gpu) {
  Result<std::shared_ptr<Communicator>> made =
      Communicator::create(id, ranks, rank, config, std::move(gpu));
  if (!made) return std::move(made).error();
  *comm = reinterpret_cast<arcComm_t>(communicators().insert(std::move(*made)));
  return {};
}

// A group's communicators are created on threads of their own, where no GPU is current. Null on the
// host, and where no daemon answers: the creation itself will say so.
Result<std::shared_ptr<Gpu>> gpu_of_this_thread() {
  Library& library = Library::instance();
  const Result<std::shared_ptr<Session>> session = library.session(library.control_deadline());
  if (!session || (*session)->gpus() == nullptr) return std::shared_ptr<Gpu>();
  return (*session)->gpus()->current();
}

// Of two threads that release one handle, one gets it and the other an error.
Result<std::shared_ptr<Communicator>> take(arcComm_t handle) {
  Result<std::shared_ptr<Communicator>> found = find(handle);
  if (!found) return found;
  if (communicators().take(reinterpret_cast<std::uintptr_t>(handle))) return found;
  return error(ErrorCode::NotFound, Reason::UnknownHandle, "comm ", static_cast<void*>(handle),
               " was destroyed by another thread");
}

}  // namespace
}  // namespace arcomm::client

using namespace arcomm;  // NOLINT(google-build-using-namespace): this file is the translation
using namespace arcomm::client;  // NOLINT(google-build-using-namespace)

extern "C" {

arcResult_t arcGetUniqueId(arcUniqueId* id) {
  return guarded([&]() -> Status {
    if (id == nullptr) return null_argument("id");
    const UniqueId made = make_unique_id();
    std::memcpy(id->internal, made.data(), made.size());
    return {};
  });
}

arcResult_t arcCommInitRank(arcComm_t* comm, int ranks, arcUniqueId id, int rank) {
  return arcCommInitRankConfig(comm, ranks, id, rank, nullptr);
}

arcResult_t arcCommInitRankConfig(arcComm_t* comm, int ranks, arcUniqueId id, int rank,
                                  const arcCommConfig_t* config) {
  return guarded([&]() -> Status {
    if (comm == nullptr) return null_argument("comm");
    *comm = nullptr;
    const Result<CommunicatorConfig> wanted = read_config(config);
    if (!wanted) return wanted.error();
    if (ranks < 1 || ranks > kMaxRanks) {
      return error(ErrorCode::InvalidArgument, Reason::BadValue, "ranks is ", ranks, "; 1 to ",
                   kMaxRanks, " are possible");
    }
    if (rank < 0 || rank >= ranks) {
      return error(ErrorCode::InvalidArgument, Reason::BadValue, "rank is ", rank, "; with ", ranks,
                   " ranks it is 0 to ", ranks - 1);
    }
    UniqueId bytes;
    std::memcpy(bytes.data(), id.internal, bytes.size());
    if (bytes == UniqueId{}) {
      return error(
          ErrorCode::InvalidArgument, Reason::BadValue,
          "the unique id is all zero: make it with arcGetUniqueId and hand it to every rank");
    }
    if (Group::of_this_thread().open()) {
      Result<std::shared_ptr<Gpu>> gpu = gpu_of_this_thread();
      if (!gpu) return std::move(gpu).error();
      Group::of_this_thread().create(
          [comm, ranks, bytes, rank, wanted = *wanted, gpu = std::move(*gpu)] {
            return create_communicator(comm, ranks, bytes, rank, wanted, gpu);
          });
      return {};
    }
    return create_communicator(comm, ranks, bytes, rank, *wanted, nullptr);
  });
}

arcResult_t arcCommDestroy(arcComm_t comm) {
  return guarded([&]() -> Status {
    if (Group& group = Group::of_this_thread(); group.open()) {
      if (Result<std::shared_ptr<Communicator>> found = find(comm); !found)
        return std::move(found).error();
      group.destroy([comm]() -> Status {
        Result<std::shared_ptr<Communicator>> taken = take(comm);
        return taken ? (*taken)->destroy() : Status(std::move(taken).error());
      });
      return {};
    }
    Result<std::shared_ptr<Communicator>> taken = take(comm);
    return taken ? (*taken)->destroy() : Status(std::move(taken).error());
  });
}

arcResult_t arcCommAbort(arcComm_t comm) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Communicator>> taken = take(comm);
    return taken ? (*taken)->abort() : Status(std::move(taken).error());
  });
}

arcResult_t arcCommRebuild(arcComm_t comm) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Communicator>> found = find(comm);
    if (!found) return std::move(found).error();
    if (Group& group = Group::of_this_thread(); group.open()) {
      group.create([communicator = std::move(*found)] { return communicator->rebuild(); });
      return {};
    }
    return (*found)->rebuild();
  });
}

arcResult_t arcCommCount(arcComm_t comm, int* ranks) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Communicator>> found = find(comm);
    if (!found) return std::move(found).error();
    if (ranks == nullptr) return null_argument("ranks");
    *ranks = (*found)->ranks();
    return {};
  });
}

arcResult_t arcCommUserRank(arcComm_t comm, int* rank) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Communicator>> found = find(comm);
    if (!found) return std::move(found).error();
    if (rank == nullptr) return null_argument("rank");
    *rank = (*found)->rank();
    return {};
  });
}

arcResult_t arcCommGetEpoch(arcComm_t comm, uint64_t* epoch) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Communicator>> found = find(comm);
    if (!found) return std::move(found).error();
    if (epoch == nullptr) return null_argument("epoch");
    *epoch = (*found)->epoch();
    return {};
  });
}

arcResult_t arcCommGetAsyncError(arcComm_t comm, arcResult_t* state) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Communicator>> found = find(comm);
    if (!found) return std::move(found).error();
    if (state == nullptr) return null_argument("state");
    Error said = (*found)->state();
    *state = static_cast<arcResult_t>(said.code);
    if (said.code != ErrorCode::Ok) failed(std::move(said));  // arcGetLastError says why
    return {};
  });
}

}  // extern "C"

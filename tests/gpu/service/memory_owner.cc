#include "tests/gpu/service/memory_owner.h"

#include <cuda_runtime_api.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "transport/device/cuda/cuda_device.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): unistd.h does not say it

namespace arcomm::gpu {
namespace {

constexpr int kSocket = 3;  // of the process that was started
constexpr const char* kOwner = "--memory-owner";
constexpr const char* kStranger = "--memory-stranger";
constexpr unsigned char kStrangers = 0x5a;
constexpr std::uint64_t kPiece = 64 << 20, kEvery = 1 << 20, kLooked = 64;

struct Message {
  char what = 0;
  std::uint64_t value = 0;
  std::array<std::array<std::byte, 64>, 2> handles{};
};

bool send(int socket, const Message& message, const std::vector<int>& descriptors = {}) {
  Message copy = message;
  iovec bytes{&copy, sizeof(copy)};
  alignas(cmsghdr) char room[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = room;
    header.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
  }
  return ::sendmsg(socket, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(copy));
}

bool receive(int socket, Message& message, std::vector<UniqueFd>& descriptors) {
  iovec bytes{&message, sizeof(message)};
  alignas(cmsghdr) char room[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = room;
  header.msg_controllen = sizeof(room);
  if (::recvmsg(socket, &header, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof(message)))
    return false;
  for (cmsghdr* rights = CMSG_FIRSTHDR(&header); rights != nullptr;
       rights = CMSG_NXTHDR(&header, rights)) {
    const std::size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(fd);
    }
  }
  return true;
}

// ---- in the process that was started ----
[[noreturn]] void die(const char* what, cudaError_t why = cudaSuccess) {
  std::fprintf(stderr, "the owner of the memory: %s: %s\n", what, cudaGetErrorString(why));
  std::_Exit(1);
}
void cuda(cudaError_t result, const char* what) {
  if (result != cudaSuccess) die(what, result);
}
void answer(const Message& message, const std::vector<int>& descriptors = {}) {
  if (!send(kSocket, message, descriptors)) die("its starter does not listen");
}

void* filled(void* memory, std::uint64_t bytes) {
  std::vector<float> values(bytes / sizeof(float));
  for (std::uint64_t i = 0; i < values.size(); ++i) values[i] = sent_by(1, i);
  cuda(cudaMemcpy(memory, values.data(), bytes, cudaMemcpyHostToDevice), "filling");
  return memory;
}

void own(Sharing sharing, int ordinal, std::uint64_t bytes) {
  std::unique_ptr<CudaDevice> device;
  std::array<Memory, 2> memory;
  std::array<void*, 2> plain{};
  std::vector<UniqueFd> exported;
  Message made{.what = 'm'};
  if (sharing == Sharing::CudaIpc) {
    for (std::size_t i = 0; i < 2; ++i) {
      cuda(cudaMalloc(&plain[i], bytes), "cudaMalloc");
      cudaIpcMemHandle_t handle{};
      cuda(cudaIpcGetMemHandle(&handle, plain[i]), "cudaIpcGetMemHandle");
      std::memcpy(made.handles[i].data(), &handle, sizeof(handle));
    }
    filled(plain[0], bytes);
  } else {
    Result<std::unique_ptr<CudaDevice>> opened =
        CudaDevice::create({.ordinal = ordinal, .peers = {}});
    if (!opened) die(opened.error().message.c_str());
    device = std::move(*opened);
    for (Memory& one : memory) {
      Result<Memory> got = device->allocate(bytes);
      if (!got) die(got.error().message.c_str());
      one = std::move(*got);
      Result<UniqueFd> fd = one.export_fd();
      if (!fd) die(fd.error().message.c_str());
      exported.push_back(std::move(*fd));
    }
    filled(memory[0].data(), bytes);
  }
  cuda(cudaDeviceSynchronize(), "filling");
  std::vector<int> descriptors;
  for (const UniqueFd& fd : exported) descriptors.push_back(fd.get());
  answer(made, descriptors);
  exported.clear();
  Message told;
  std::vector<UniqueFd> none;
  while (receive(kSocket, told, none)) {
    for (void*& place : plain) cuda(cudaFree(std::exchange(place, nullptr)), "cudaFree");
    for (Memory& one : memory) one = {};
    answer({.what = 'f'});
  }
}

void be_a_stranger() {
  std::vector<unsigned char*> pieces;
  Message told;
  std::vector<UniqueFd> none;
  answer({.what = 'm'});
  while (receive(kSocket, told, none)) {
    if (told.what == 't') {
      void* piece = nullptr;
      while (cudaMalloc(&piece, kPiece) == cudaSuccess) {
        cuda(cudaMemset(piece, kStrangers, kPiece), "writing");
        pieces.push_back(static_cast<unsigned char*>(piece));
      }
      cudaGetLastError();
      cuda(cudaDeviceSynchronize(), "writing");
      answer({.what = 't', .value = pieces.size() * (kPiece >> 20)});
      continue;
    }
    // Memory goes to others by pages of 2 MB: some bytes of each megabyte tell.
    std::vector<unsigned char> seen(kPiece / kEvery * kLooked);
    bool same = true;
    for (const unsigned char* piece : pieces) {
      cuda(cudaMemcpy2D(seen.data(), kLooked, piece, kEvery, kLooked, kPiece / kEvery,
                        cudaMemcpyDeviceToHost),
           "looking");
      same &= std::ranges::all_of(seen, [](unsigned char byte) { return byte == kStrangers; });
    }
    answer({.what = 'c', .value = same ? 1U : 0U});
  }
}

}  // namespace

int run_as_owner(int argc, char** argv) {
  if (argc < 3) return -1;
  const int ordinal = std::atoi(argv[2]);
  if (std::strcmp(argv[1], kStranger) == 0) {
    cuda(cudaSetDevice(ordinal), "cudaSetDevice");
    be_a_stranger();
    return 0;
  }
  if (std::strcmp(argv[1], kOwner) != 0 || argc != 5) return -1;
  cuda(cudaSetDevice(ordinal), "cudaSetDevice");
  own(static_cast<Sharing>(std::atoi(argv[3])), ordinal, std::strtoull(argv[4], nullptr, 10));
  return 0;
}

// ---- in the one that starts it ----
Result<MemoryOwner> MemoryOwner::spawn(const std::vector<std::string>& arguments) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return error(ErrorCode::Internal, Reason::None, "socketpair: ", std::strerror(errno));
  UniqueFd mine(pair[0]), other(pair[1]);
  std::vector<char*> argv;
  std::string self = "/proc/self/exe";
  argv.push_back(self.data());
  std::vector<std::string> words = arguments;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, other.get(), kSocket);
  pid_t pid = -1;
  const int failed = ::posix_spawn(&pid, self.c_str(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0)
    return error(ErrorCode::Internal, Reason::None, "posix_spawn: ", std::strerror(failed));
  return MemoryOwner(pid, std::move(mine));
}

Result<MemoryOwner> MemoryOwner::start(Sharing sharing, int ordinal, std::uint64_t bytes) {
  Result<MemoryOwner> made =
      spawn({kOwner, std::to_string(ordinal), std::to_string(static_cast<int>(sharing)),
             std::to_string(bytes)});
  if (!made) return made;
  Message message;
  std::vector<UniqueFd> descriptors;
  if (!receive(made->socket_.get(), message, descriptors))
    return error(ErrorCode::Internal, Reason::None, "it has no memory: see above");
  for (std::size_t i = 0; i < 2; ++i) {
    Part& part = made->parts_[i];
    part.handle.kind = sharing == Sharing::CudaIpc ? MemoryKind::CudaIpc : MemoryKind::PosixFd;
    part.handle.opaque = message.handles[i];
    part.handle.length_bytes = part.handle.allocation_bytes = bytes;
    if (i < descriptors.size()) part.descriptor = std::move(descriptors[i]);
  }
  return made;
}

Result<MemoryOwner> MemoryOwner::start_stranger(int ordinal) {
  Result<MemoryOwner> made = spawn({kStranger, std::to_string(ordinal)});
  Message message;
  std::vector<UniqueFd> none;
  if (made && !receive(made->socket_.get(), message, none))
    return error(ErrorCode::Internal, Reason::None, "the stranger did not come: see above");
  return made;
}

MemoryOwner::MemoryOwner(MemoryOwner&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      socket_(std::move(other.socket_)),
      parts_(std::move(other.parts_)) {}

MemoryOwner::~MemoryOwner() {
  kill();
}

void MemoryOwner::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(std::exchange(pid_, -1), nullptr, 0);
}

Result<std::uint64_t> MemoryOwner::ask(char what) {
  Message message{.what = what};
  std::vector<UniqueFd> none;
  if (!send(socket_.get(), message) || !receive(socket_.get(), message, none))
    return error(ErrorCode::Unavailable, Reason::RemoteDied, "it has ended: see above");
  return message.value;
}

Status MemoryOwner::free_memory() {
  const Result<std::uint64_t> freed = ask('f');
  return freed ? Status() : Status(freed.error());
}

Result<std::uint64_t> MemoryOwner::take_all() {
  return ask('t');
}

Result<bool> MemoryOwner::is_untouched() {
  const Result<std::uint64_t> said = ask('c');
  if (!said) return said.error();
  return *said != 0;
}

}  // namespace arcomm::gpu

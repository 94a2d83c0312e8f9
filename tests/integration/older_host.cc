// Preloaded into the daemon, makes its host an older or a worse one: the kernel does not know
// SO_PASSRIGHTS, as none before Linux 6.16; and names of groups are looked up at a service that
// answers for as long as the file $ARCOMM_TEST_NAMES_HANG is not there, and never to the control
// loop.
#include <dlfcn.h>
#include <grp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace {

template <typename Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

bool must_wait() {
  char name[16] = {};
  ::pthread_getname_np(::pthread_self(), name, sizeof(name));
  const char* hangs = std::getenv("ARCOMM_TEST_NAMES_HANG");
  return std::strcmp(name, "arc-control") == 0 || (hangs != nullptr && ::access(hangs, F_OK) == 0);
}

void ask_the_name_service() {
  while (must_wait()) ::usleep(1000);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int setsockopt(int fd, int level, int name,
                                                      const void* value, socklen_t bytes) noexcept {
  constexpr int kPassRights = 83;
  if (level == SOL_SOCKET && name == kPassRights) {
    errno = ENOPROTOOPT;
    return -1;
  }
  static const auto set = real<int (*)(int, int, int, const void*, socklen_t)>("setsockopt");
  return set(fd, level, name, value, bytes);
}

__attribute__((visibility("default"))) struct group* getgrnam(const char* name) {
  ask_the_name_service();
  static const auto get = real<struct group* (*)(const char*)>("getgrnam");
  return get(name);
}

__attribute__((visibility("default"))) int getgrnam_r(const char* name, struct group* entry,
                                                      char* room, size_t bytes,
                                                      struct group** found) {
  ask_the_name_service();
  static const auto get =
      real<int (*)(const char*, struct group*, char*, size_t, struct group**)>("getgrnam_r");
  return get(name, entry, room, bytes, found);
}
}

// What a thread is doing while it does not come round: loaded into a process by LD_PRELOAD, this
// looks four times a second at the stack of each of its threads of one name, and writes it down.
//   STACKS_PROGRAM  the process's name; any other is left alone
//   STACKS_THREAD   the threads' name
//   STACKS_OUT      the file, to which it appends: "== <seconds since 1970> <thread>", then a line
//                   a frame, innermost first; addr2line tells functions that are not exported
// Calls of the driver are seen by the libcuda.so frames below ours.
#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace {

constexpr int kMostFrames = 64;
constexpr int kOurFrames = 2;  // the handler's and the signal's
constexpr useconds_t kEveryUs = 250'000;
constexpr int kPatienceMs = 50;

std::array<void*, kMostFrames> g_frames;
std::atomic<int> g_count{-1};  // -1: not told yet

void tell(int) {
  const int before = errno;
  g_count.store(::backtrace(g_frames.data(), kMostFrames), std::memory_order_release);
  errno = before;
}

void look_at(pid_t thread, const std::string& name, std::FILE* out) {
  g_count = -1;
  if (::syscall(SYS_tgkill, ::getpid(), thread, SIGRTMIN + 9) != 0) return;
  for (int i = 0; i < kPatienceMs && g_count < 0; ++i) ::usleep(1000);
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  std::fprintf(out, "== %ld.%03ld %s\n", static_cast<long>(now.tv_sec), now.tv_nsec / 1'000'000,
               name.c_str());
  const int count = g_count.load(std::memory_order_acquire);
  char** lines = count < 0 ? nullptr : ::backtrace_symbols(g_frames.data(), count);
  if (lines == nullptr) std::fprintf(out, "no answer\n");
  for (int i = kOurFrames; lines != nullptr && i < count; ++i) std::fprintf(out, "%s\n", lines[i]);
  std::free(lines);
  std::fflush(out);
}

void* watch(void* file) {
  auto* const out = static_cast<std::FILE*>(file);
  const char* const wanted = std::getenv("STACKS_THREAD");
  for (;;) {
    ::usleep(kEveryUs);
    DIR* const threads = ::opendir("/proc/self/task");
    if (threads == nullptr) return nullptr;
    while (const dirent* const one = ::readdir(threads)) {
      std::string name;
      std::ifstream comm(std::string("/proc/self/task/") + one->d_name + "/comm");
      if (std::getline(comm, name) && name == wanted) look_at(std::atoi(one->d_name), name, out);
    }
    ::closedir(threads);
  }
}

__attribute__((constructor)) void start() {
  const char* const program = std::getenv("STACKS_PROGRAM");
  const char* const file = std::getenv("STACKS_OUT");
  if (program == nullptr || file == nullptr || std::getenv("STACKS_THREAD") == nullptr ||
      std::strcmp(program, program_invocation_short_name) != 0)
    return;
  std::FILE* const out = std::fopen(file, "ae");
  if (out == nullptr) return;
  void* first[1];
  ::backtrace(first, 1);  // loads what it needs, which a handler must not
  struct sigaction on_signal {};
  on_signal.sa_handler = tell;
  on_signal.sa_flags = SA_RESTART;
  ::sigaction(SIGRTMIN + 9, &on_signal, nullptr);
  // Signals are for the process's own threads: one that takes SIGTERM in its turn must not find
  // this one first.
  sigset_t all{}, before{};
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t watcher{};
  if (::pthread_create(&watcher, nullptr, watch, out) == 0) ::pthread_detach(watcher);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

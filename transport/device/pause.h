// Tells the processor that this thread spins, so that the other one on the core, and the bus, get
// their share.
#pragma once

namespace arcomm {

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace arcomm

// What a fake GPU runs as an echo of flags. Thread: the worker's.
#pragma once

#include <cstdint>

#include "daemon/exec/clock.h"
#include "kernels/trial/flag_echo.h"
#include "tests/unit/daemon/exec/gpu/fakes/fake_words.h"

namespace arcomm::test {

class FakeFlagEcho {
 public:
  explicit FakeFlagEcho(const FlagEchoCall& call) : call_(call) {}

  bool has_begun() const { return since_ns_ != 0; }
  // A look at the answer; true: it has ended.
  bool run() {
    if (since_ns_ == 0) {
      since_ns_ = now_ns();
      store_word(call_.words->asked, 1);
    }
    const std::uint64_t asked = load_word(call_.words->asked);
    const std::uint64_t answered = load_word(call_.words->answered);
    if (answered == kStopEcho) return end(FlagEchoEnd::Stopped);
    if (answered == asked) {
      if (asked == call_.times) return end(FlagEchoEnd::Answered);
      store_word(call_.words->asked, asked + 1);
      return false;
    }
    return now_ns() - since_ns_ >= call_.timeout_ns && end(FlagEchoEnd::TimedOut);
  }

 private:
  bool end(FlagEchoEnd how) const {
    store_word(call_.words->ended, static_cast<std::uint64_t>(how));
    return true;
  }

  FlagEchoCall call_;
  std::uint64_t since_ns_ = 0;
};

}  // namespace arcomm::test

// A buffer on its way in: what it has been charged, until its session holds it. Thread: the control
// loop's. Owned by the callbacks of the call that asked for it.
#pragma once

#include "daemon/control/node_control.h"

namespace arcomm {

struct NodeControl::NewBuffer {
  SessionId session;
  BufferSpec seed;
  HeldBuffer held;
  bool give_ticket = false;
  Answer<v1::BufferReply> answer;

  // What it was charged is free again before the client hears of the failure.
  void fail(const Error& why) {
    held = {};
    answer(why);
  }
};

}  // namespace arcomm

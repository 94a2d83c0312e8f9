// A call of `arctl tune` or `arctl bench --network` under way: what it asks for, where its messages
// go, and whether its caller has gone. A view, for as long as the call lasts.
#pragma once

#include <functional>

#include "proto/arcommd/v1/control.pb.h"

namespace arcomm {

namespace v1 = arcommd::v1;

struct TuneCall {
  const v1::TuneRequest& request;
  const std::function<void(v1::TuneReply)>& send;  // the last message has `finished` set
  const std::function<bool()>& cancelled;
};

}  // namespace arcomm

// Whether a call for a rank goes with those that wait under the same unique id, and the words for
// what does not: the rules of rendezvous.h, without its state. Any thread.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "daemon/control/rendezvous/local_meeting.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

using WaitingCalls = std::map<Rank, LocalMeeting::Call>;

// Why the newcomer and all that wait fail; nothing where it goes with them. ranks: what those say
// about their number.
std::optional<Error> disagreement(const WaitingCalls& calls, int ranks,
                                  const LocalMeeting::Call& newcomer);
// state: "is in use", "has already called".
Error refuse_duplicate(const LocalMeeting::Call& call, SessionId holder, const char* state);
// "ranks 1, 3 of 4 have not called"; somebody has not.
std::string absent(const WaitingCalls& calls, int ranks);
Rank first_absent(const WaitingCalls& calls);

}  // namespace arcomm

#pragma once

#include <string>
#include <vector>

#include "common/base/ids.h"

namespace baton {

// The session in which the victim gets its signal, and the session with the process after it.
inline const SessionId kDisturbedSession(1);
inline const SessionId kNextSession(2);

// The main function of kv_peer for state_fault.h. `args`: state-sender|state-receiver TRANSPORT
// CONTROL_FD COURSE STATE SIGNAL. COURSE is the number of a HandoffCourse. In the state "none" no
// signal comes. Returns 0 when the session has ended and nothing is left.
int RunStateVictim(const std::vector<std::string>& args);

}  // namespace baton

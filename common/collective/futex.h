#pragma once

#include <cstdint>

#include "common/base/clock.h"

namespace baton {

// Sleeps while `word` is `value`, until FutexWake or until `limit` passes; may also return early.
// The word may be in memory that processes share. See futex(2).
void FutexWait(uint32_t& word, uint32_t value, Duration limit);

// Wakes all threads of all processes that sleep on `word`.
void FutexWake(uint32_t& word);

}  // namespace baton

#pragma once

#include <cstdint>

#include "common/base/clock.h"

// Sleeping on a word of memory, also of memory that several processes share (man 2 futex). The word
// is a plain integer that every access treats as atomic (std::atomic_ref).
namespace baton {

// Sleeps while `word` is `value`, until FutexWake or until `limit` passes; may also return early.
void FutexWait(uint32_t& word, uint32_t value, Duration limit);

// Wakes all threads of all processes that sleep on `word`.
void FutexWake(uint32_t& word);

}  // namespace baton

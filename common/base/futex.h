#pragma once

#include <atomic>
#include <cstdint>

#include "common/base/clock.h"

// Sleeping on a word of memory, also of memory that several processes share (man 2 futex).
namespace baton {

// Sleeps while `word` has the value `expected`, at most `timeout`. May return early.
void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, Duration timeout);

// Wakes every thread that sleeps on `word`, in all processes.
void FutexWakeAll(std::atomic<uint32_t>& word);

}  // namespace baton

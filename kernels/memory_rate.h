#pragma once

#include <functional>

#include "common/base/clock.h"

namespace baton {

// The processor time that the calling thread has used since its start.
Duration ThreadProcessorTime();

// How many bytes per second `threads` threads (at most 64 of them) together read from the memory of
// this host: the best of a few passes over memory that is larger than the cache. 0 when memory is
// lacking. Takes about 0.1 s and up to 256 MiB, which are free again after the return.
//
// A pass takes as long as the `processor_time` of its slowest thread, so that time in which other
// processes have the processors does not count. While they do, fewer threads share the memory, and
// the result may be too high: at most by the number of threads.
double MeasureMemoryRate(int threads,
                         const std::function<Duration()>& processor_time = ThreadProcessorTime);

}  // namespace baton

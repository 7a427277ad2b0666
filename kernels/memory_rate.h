#pragma once

namespace baton {

// How many bytes per second `threads` threads (at most 64 of them) together read from the memory of
// this host: the best of a few passes over memory that is larger than the cache. 0 when memory is
// lacking. Takes about 0.1 s and up to 256 MiB, which are free again after the return.
double MeasureMemoryRate(int threads);

}  // namespace baton

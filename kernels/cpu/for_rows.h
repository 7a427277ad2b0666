#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/thread_pool.h"

namespace baton::cpu {

// Less work than this is not distributed to other threads.
constexpr int64_t kWorthSharing = 4000;  // nanoseconds

// Runs body(row) for every row, on the thread pool when the work is large enough. A row takes about
// `row_work` nanoseconds.
template <class Body>
void ForRows(ThreadPool& pool, int64_t rows, int64_t row_work, const Body& body) {
  if (rows < 2 || pool.threads() == 1 || rows * row_work < kWorthSharing) {
    for (int64_t row = 0; row < rows; ++row) body(row);
    return;
  }
  const int64_t chunks = std::min<int64_t>(rows, int64_t{pool.threads()} * 4);
  pool.Run(chunks, [&](int64_t chunk, int) {
    const int64_t end = rows * (chunk + 1) / chunks;
    for (int64_t row = rows * chunk / chunks; row < end; ++row) body(row);
  });
}

}  // namespace baton::cpu

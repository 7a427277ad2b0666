#pragma once

#include <cstddef>
#include <vector>

#include "common/base/status.h"
#include "kernels/collective.h"

namespace baton::cuda {

// All-gathers one record of each rank. Returns the records by rank. Errors: those of `host`.
template <class T>
StatusOr<std::vector<T>> GatherRecords(Collective& host, const T& mine) {
  const auto size = static_cast<size_t>(host.size());
  std::vector<T> all(size);
  all[static_cast<size_t>(host.rank())] = mine;
  std::vector<size_t> ends;
  for (size_t i = 1; i <= size; ++i) ends.push_back(i * sizeof(T));
  const CollectiveRows rows = {
      .data = reinterpret_cast<std::byte*>(all.data()), .count = 1, .stride = size * sizeof(T)};
  BATON_RETURN_IF_ERROR(host.AllGather(rows, ends));
  return all;
}

}  // namespace baton::cuda

#include "kernels/cuda/dma/row_copies.h"

#include <algorithm>
#include <utility>

namespace baton::cuda {
namespace {

// A longer row is copied as several rows of this size, so that rows fill the launches.
constexpr uint64_t kMaxRowBytes = uint64_t{1} << 20;
static_assert(kMaxRowBytes <= kMaxLaunchBytes && kMaxRowBytes % RowCopyArgs::kAlignment == 0);

// Fills launches with copies, one launch after the other.
class Launches {
 public:
  Launches(const std::byte* from, std::byte* to) : from_(from), to_(to) {}

  // Adds a copy whose rows have 1 to kMaxRowBytes bytes.
  void Add(const StridedCopy& copy) {
    for (uint64_t row = 0; row < copy.rows;) {
      if (left_ < copy.first.bytes || all_.back().count == RowCopyArgs::kMaxCopies) {
        all_.emplace_back();
        left_ = kMaxLaunchBytes;
      }
      RowCopyArgs& launch = all_.back();
      RowCopyArgs::Copy& part = launch.copies[launch.count];
      part.source = from_ + copy.first.source + row * copy.source_pitch;
      part.destination = to_ + copy.first.destination + row * copy.destination_pitch;
      part.source_pitch = copy.source_pitch;
      part.destination_pitch = copy.destination_pitch;
      part.row_bytes = static_cast<uint32_t>(copy.first.bytes);
      part.rows = static_cast<uint32_t>(std::min(copy.rows - row, left_ / copy.first.bytes));
      if (launch.count > 0) {
        const RowCopyArgs::Copy& before = launch.copies[launch.count - 1];
        part.first_block = before.first_block + before.blocks();
      }
      ++launch.count;
      left_ -= part.bytes();
      row += part.rows;
    }
  }
  std::vector<RowCopyArgs> Take() { return std::move(all_); }

 private:
  const std::byte* const from_;
  std::byte* const to_;
  std::vector<RowCopyArgs> all_;
  uint64_t left_ = 0;  // the bytes for which the last launch has room
};

void AddLongRow(Launches& launches, CopyRun run) {
  const uint64_t rows = run.bytes / kMaxRowBytes;
  launches.Add({{run.source, run.destination, kMaxRowBytes}, kMaxRowBytes, kMaxRowBytes, rows});
  const uint64_t rest = run.bytes % kMaxRowBytes;
  const uint64_t at = rows * kMaxRowBytes;
  if (rest > 0) launches.Add({{run.source + at, run.destination + at, rest}, 0, 0, 1});
}

}  // namespace

bool SuitsRowKernel(const StridedCopy& copy, const std::byte* from, const std::byte* to) {
  const uint64_t all = (reinterpret_cast<uintptr_t>(from) + copy.first.source) |
                       (reinterpret_cast<uintptr_t>(to) + copy.first.destination) |
                       copy.first.bytes | copy.source_pitch | copy.destination_pitch;
  return all % RowCopyArgs::kAlignment == 0;
}

std::vector<RowCopyArgs> PlanRowCopies(std::span<const StridedCopy> copies,
                                       const std::byte* from,
                                       std::byte* to) {
  Launches launches(from, to);
  for (const StridedCopy& copy : copies) {
    if (copy.first.bytes == 0) continue;
    if (copy.first.bytes <= kMaxRowBytes) {
      launches.Add(copy);
      continue;
    }
    for (uint64_t row = 0; row < copy.rows; ++row) {
      AddLongRow(launches,
                 {copy.first.source + row * copy.source_pitch,
                  copy.first.destination + row * copy.destination_pitch,
                  copy.first.bytes});
    }
  }
  return launches.Take();
}

}  // namespace baton::cuda

#include "kernels/cuda/exchange/listed_exchange.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "common/base/check.h"
#include "kernels/cuda/exchange/peer_kernels.h"

namespace baton::cuda {
namespace {

// From this size on, three or more ranks add slices through NCCL. Below, the second exchange costs
// more than the bytes that it saves.
constexpr size_t kMinSlicedBytes = size_t{512} << 10;
// The same through slots: the bytes that a rank must send less to pay for the second phase, which
// takes about 2 µs. 4 ranks add slices from 512 KiB on, 8 ranks from 147 KiB on.
constexpr size_t kMinSavedBytes = size_t{768} << 10;
// Addresses and rows of sums through slots are multiples of a vector; those of other exchanges, of
// a word.
constexpr size_t kVectorBytes = 16;
constexpr size_t kWordBytes = 4;
// Slices begin at multiples of this many numbers, for vector accesses.
constexpr int64_t kSliceMultiple = 8;

// Whether the addresses and lengths of the rows of `x`, and of columns that end at `ends`, are
// multiples of `unit` bytes.
bool IsMultipleOf(size_t unit, const Tensor& x, std::span<const int64_t> ends) {
  const auto whole = [&](int64_t numbers) {
    return static_cast<size_t>(numbers) * ShapeOf(x.dtype).bytes % unit == 0;
  };
  return whole(x.cols) && whole(x.stride) && std::ranges::all_of(ends, whole) &&
         reinterpret_cast<uintptr_t>(x.data) % unit == 0;
}

// The bytes that each of `ranks` ranks sends less when it adds a slice of a sum of `bytes` bytes:
// (ranks − 1) · bytes of a one-shot sum, less 2 · (ranks − 1) / ranks · bytes.
size_t SavedByTwoShot(size_t bytes, int32_t ranks) {
  const auto count = static_cast<size_t>(ranks);
  return bytes * (count - 1) * (count - 2) / count;
}

// The number of rows as long as those of `x` that fit `bytes` bytes.
int64_t RowsIn(size_t bytes, const Tensor& x) {
  const size_t row_bytes = PackedBytes(x.Rows(0, 1));
  return row_bytes == 0 ? x.rows : static_cast<int64_t>(bytes / row_bytes);
}

// Calls `list` with the rows of `x` in ranges of nearly equal size, at most `max_rows` rows each.
void ForRowRanges(const Tensor& x,
                  int64_t max_rows,
                  const std::function<void(const Tensor&)>& list) {
  const int64_t ranges = (x.rows + max_rows - 1) / max_rows;
  for (int64_t i = 0; i < ranges; ++i) {
    const int64_t first = x.rows * i / ranges;
    list(x.Rows(first, x.rows * (i + 1) / ranges - first));
  }
}

}  // namespace

void ListedExchange::EndStep(int32_t* tokens, int32_t count) {
  if (options_.place.tensor_parallel == 1) return;
  // Only the first stage embeds tokens. Where the stages compute several steps at a time, the
  // leader samples later, and the step after it has its tokens from the host.
  if (options_.place.stage == 0 && options_.stage_slot_bytes == 0 && count > 0) {
    ShareTokensOp share = {.tokens = tokens, .count = count};
    if (static_cast<size_t>(count) * sizeof(int32_t) <= options_.slot_bytes) {
      share.half = NextHalf();
    }
    step_.add(share);
  }
  if (half_ != 0) step_.add(BarrierOp{.half = NextHalf()});
}

int32_t ListedExchange::NextHalf() {
  return std::exchange(half_, 1 - half_);
}

bool ListedExchange::ReduceThroughSlots(const Tensor& x) {
  if (!has_slots() || !IsMultipleOf(kVectorBytes, x, {})) return false;
  ReduceOp op;
  op.ranks = options_.place.tensor_parallel;
  op.two_shot = SavedByTwoShot(PackedBytes(x), op.ranks) >= kMinSavedBytes;
  const size_t max_bytes =
      op.two_shot ? TwoShotBytes(options_.slot_bytes, op.ranks) : options_.slot_bytes;
  const int64_t max_rows = RowsIn(max_bytes, x);
  if (max_rows == 0) return false;
  ForRowRanges(x, max_rows, [&](const Tensor& rows) {
    op.x = rows;
    op.half = NextHalf();
    step_.add(op);
  });
  return true;
}

void ListedExchange::AllReduce(const Tensor& x) {
  if (options_.place.tensor_parallel == 1) return;
  ReduceOp op;
  op.x = step_.pad(x);
  op.ranks = options_.place.tensor_parallel;
  if (ReduceThroughSlots(op.x)) return;
  const size_t bytes = PackedBytes(op.x);
  op.two_shot = op.ranks > 2 && bytes >= kMinSlicedBytes && !HasGaps(op.x) &&
                op.x.rows * op.x.cols % (kSliceMultiple * op.ranks) == 0;
  op.parts = step_.scratch(op.two_shot ? bytes : bytes * static_cast<size_t>(op.ranks));
  if (op.parts != nullptr) step_.add(op);
}

bool ListedExchange::GatherThroughSlots(const GatherColumnsOp& whole) {
  if (!has_slots() || !IsMultipleOf(kWordBytes, whole.whole, whole.ends)) return false;
  // A rank sends only its own columns.
  int64_t max_columns = 0;
  int64_t begin = 0;
  for (const int64_t end : whole.ends) {
    max_columns = std::max(max_columns, end - std::exchange(begin, end));
  }
  const int64_t max_rows = RowsIn(options_.slot_bytes, whole.whole.Columns(0, max_columns));
  if (max_rows == 0) return false;
  ForRowRanges(whole.whole, max_rows, [&](const Tensor& rows) {
    GatherColumnsOp op = whole;
    op.whole = rows;
    op.half = NextHalf();
    step_.add(std::move(op));
  });
  return true;
}

void ListedExchange::Gather(const Tensor& whole, std::span<const int64_t> ends, bool to_all) {
  BATON_CHECK(ends.size() == static_cast<size_t>(options_.place.tensor_parallel) &&
                  ends.back() == whole.cols,
              "{} ends of {} columns",
              ends.size(),
              whole.cols);
  if (options_.place.tensor_parallel == 1) return;
  GatherColumnsOp op;
  op.whole = step_.pad(whole);
  op.ends.assign(ends.begin(), ends.end());
  op.to_all = to_all;
  if (GatherThroughSlots(op)) return;
  op.packed = step_.scratch(PackedBytes(op.whole));
  if (op.packed != nullptr) step_.add(op);
}

void ListedExchange::AllGather(const Tensor& whole, std::span<const int64_t> ends) {
  Gather(whole, ends, /*to_all=*/true);
}

void ListedExchange::GatherToFirst(const Tensor& whole, std::span<const int64_t> ends) {
  Gather(whole, ends, /*to_all=*/false);
}

void ListedExchange::Barrier() {
  if (options_.place.tensor_parallel == 1) return;
  if (has_slots()) return step_.add(BarrierOp{.half = NextHalf()});
  std::byte* const marks =
      step_.scratch(kMarkBytes * static_cast<size_t>(options_.place.tensor_parallel));
  if (marks != nullptr) step_.add(BarrierOp{.marks = marks});
}

void ListedExchange::Stage(const Tensor& x, int32_t stage, bool send) {
  BATON_CHECK(
      stage >= 0 && stage < options_.place.pipeline_parallel && stage != options_.place.stage,
      "stage {} exchanges with stage {} of {}",
      options_.place.stage,
      stage,
      options_.place.pipeline_parallel);
  StageOp op = {.x = step_.pad(x), .stage = stage, .send = send};
  if (options_.stage_slot_bytes > 0) {
    const int64_t max_rows = RowsIn(options_.stage_slot_bytes, op.x);
    BATON_CHECK(max_rows > 0 && IsMultipleOf(kWordBytes, op.x, {}),
                "a row of {} numbers passes no slot between stages",
                x.cols);
    ForRowRanges(op.x, max_rows, [&](const Tensor& rows) {
      step_.add(StageOp{.x = rows, .stage = stage, .send = send, .through_slots = true});
    });
    return;
  }
  if (HasGaps(op.x)) {
    op.packed = step_.scratch(PackedBytes(op.x));
    if (op.packed == nullptr) return;
  }
  step_.add(op);
}

void ListedExchange::SendToStage(const Tensor& x, int32_t stage) {
  Stage(x, stage, /*send=*/true);
}

void ListedExchange::ReceiveFromStage(const Tensor& x, int32_t stage) {
  Stage(x, stage, /*send=*/false);
}

}  // namespace baton::cuda

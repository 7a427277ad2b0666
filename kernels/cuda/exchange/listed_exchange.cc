#include "kernels/cuda/exchange/listed_exchange.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "common/base/check.h"
#include "kernels/cuda/exchange/peer_kernels.h"

namespace baton::cuda {
namespace {

// Through NCCL, sums of at least this size are two-shot with three or more ranks. For smaller sums
// the second exchange costs more than the bytes that two-shot saves.
constexpr size_t kMinTwoShotBytes = size_t{512} << 10;
// Through slots, a sum is two-shot if each rank sends at least this many bytes less than in a
// one-shot sum. This pays for the second phase, which takes about 2 µs. Sums of 4 ranks are
// two-shot from 512 KiB on, sums of 8 ranks from 147 KiB on.
constexpr size_t kMinSavedBytes = size_t{768} << 10;
// Sums through slots access vectors of 16 bytes, and other exchanges words of 4 bytes. Addresses
// and row lengths must be multiples of these sizes.
constexpr size_t kVectorBytes = 16;
constexpr size_t kWordBytes = 4;
// Slices begin at multiples of this many elements, for vector accesses.
constexpr int64_t kSliceMultiple = 8;

// Whether the address, the row length and the row stride of `x`, and the column offsets `ends`, are
// multiples of `unit` bytes.
bool IsAligned(size_t unit, const Tensor& x, std::span<const int64_t> ends) {
  const auto aligned = [&](int64_t elements) {
    return static_cast<size_t>(elements) * ShapeOf(x.dtype).bytes % unit == 0;
  };
  return aligned(x.cols) && aligned(x.stride) && std::ranges::all_of(ends, aligned) &&
         reinterpret_cast<uintptr_t>(x.data) % unit == 0;
}

// How many bytes less a rank sends in a two-shot sum of `bytes` bytes than in a one-shot sum:
// (ranks − 1) · bytes − 2 · (ranks − 1) / ranks · bytes.
size_t SavedByTwoShot(size_t bytes, int32_t ranks) {
  const auto count = static_cast<size_t>(ranks);
  return bytes * (count - 1) * (count - 2) / count;
}

// The number of rows of the length of `x`'s rows that fit into `bytes` bytes.
int64_t RowsThatFit(size_t bytes, const Tensor& x) {
  const size_t row_bytes = PackedBytes(x.Rows(0, 1));
  return row_bytes == 0 ? x.rows : static_cast<int64_t>(bytes / row_bytes);
}

// Divides the rows of `x` into ranges of nearly equal size, of at most `max_rows` rows, and calls
// `list` with each range.
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
  // Only the first stage embeds tokens. With slots between stages, several steps are in flight and
  // the leader samples later; the host then passes the tokens to the next step.
  if (options_.place.stage == 0 && options_.stage_slot_bytes == 0 && count > 0) {
    ShareTokensOp share = {.tokens = tokens, .count = count};
    if (static_cast<size_t>(count) * sizeof(int32_t) <= options_.slot_bytes) {
      share.slot_buffer = NextSlotBuffer();
    }
    step_.add(share);
  }
  if (slot_buffer_ != 0) step_.add(BarrierOp{.slot_buffer = NextSlotBuffer()});
}

int32_t ListedExchange::NextSlotBuffer() {
  return std::exchange(slot_buffer_, 1 - slot_buffer_);
}

bool ListedExchange::ReduceThroughSlots(const Tensor& x) {
  if (!has_slots() || !IsAligned(kVectorBytes, x, {})) return false;
  ReduceOp op;
  op.ranks = options_.place.tensor_parallel;
  op.two_shot = SavedByTwoShot(PackedBytes(x), op.ranks) >= kMinSavedBytes;
  const size_t max_bytes =
      op.two_shot ? TwoShotBytes(options_.slot_bytes, op.ranks) : options_.slot_bytes;
  const int64_t max_rows = RowsThatFit(max_bytes, x);
  if (max_rows == 0) return false;
  ForRowRanges(x, max_rows, [&](const Tensor& rows) {
    op.x = rows;
    op.slot_buffer = NextSlotBuffer();
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
  op.two_shot = op.ranks > 2 && bytes >= kMinTwoShotBytes && !HasGaps(op.x) &&
                op.x.rows * op.x.cols % (kSliceMultiple * op.ranks) == 0;
  op.parts = step_.scratch(op.two_shot ? bytes : bytes * static_cast<size_t>(op.ranks));
  if (op.parts != nullptr) step_.add(op);
}

bool ListedExchange::GatherThroughSlots(const GatherColumnsOp& whole) {
  if (!has_slots() || !IsAligned(kWordBytes, whole.whole, whole.ends)) return false;
  // Each rank sends its own columns, so a slot must hold the columns of the rank with the most.
  int64_t max_columns = 0;
  int64_t begin = 0;
  for (const int64_t end : whole.ends) {
    max_columns = std::max(max_columns, end - std::exchange(begin, end));
  }
  const int64_t max_rows = RowsThatFit(options_.slot_bytes, whole.whole.Columns(0, max_columns));
  if (max_rows == 0) return false;
  ForRowRanges(whole.whole, max_rows, [&](const Tensor& rows) {
    GatherColumnsOp op = whole;
    op.whole = rows;
    op.slot_buffer = NextSlotBuffer();
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
  if (has_slots()) return step_.add(BarrierOp{.slot_buffer = NextSlotBuffer()});
  std::byte* const flags =
      step_.scratch(kFlagBytes * static_cast<size_t>(options_.place.tensor_parallel));
  if (flags != nullptr) step_.add(BarrierOp{.flags = flags});
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
    const int64_t max_rows = RowsThatFit(options_.stage_slot_bytes, op.x);
    BATON_CHECK(
        max_rows > 0 && IsAligned(kWordBytes, op.x, {}),
        "a row of {} elements does not fit a slot between stages, or is not a multiple of 4 bytes",
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

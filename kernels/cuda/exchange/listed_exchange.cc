#include "kernels/cuda/exchange/listed_exchange.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace baton::cuda {
namespace {

// From this size on, three or more ranks add slices. Below, the second exchange costs more than the
// bytes that it saves.
constexpr size_t kMinTwoShotBytes = size_t{512} << 10;
// Addresses and rows of sums through slots are multiples of a vector; those of other exchanges, of
// a word.
constexpr size_t kVectorBytes = 16;
constexpr size_t kWordBytes = 4;
// Slices begin at multiples of this many numbers, for vector accesses.
constexpr int64_t kSliceMultiple = 8;

size_t PackedBytes(const Tensor& x) {
  return static_cast<size_t>(x.rows * x.cols) * ShapeOf(x.dtype).bytes;
}

bool HasGaps(const Tensor& x) {
  return x.rows > 1 && x.stride != x.cols;
}

// Whether the addresses and lengths of the rows of `x`, and of columns that end at `ends`, are
// multiples of `unit` bytes.
bool IsMultipleOf(size_t unit, const Tensor& x, std::span<const int64_t> ends) {
  const auto whole = [&](int64_t numbers) {
    return static_cast<size_t>(numbers) * ShapeOf(x.dtype).bytes % unit == 0;
  };
  return whole(x.cols) && whole(x.stride) && std::ranges::all_of(ends, whole) &&
         reinterpret_cast<uintptr_t>(x.data) % unit == 0;
}

}  // namespace

void ListedExchange::EndStep(int32_t* tokens, int32_t count) {
  if (options_.place.tensor_parallel == 1) return;
  // Only the first stage embeds tokens.
  if (options_.place.stage == 0 && count > 0) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(int32_t);
    step_.add(ShareTokensOp{.tokens = tokens, .count = count, .half = HalfFor(bytes)});
  }
  if (half_ != 0) step_.add(BarrierOp{.half = HalfFor(0)});
}

// The half of the slots for an exchange in which a rank sends at most `bytes` bytes.
int32_t ListedExchange::HalfFor(size_t bytes) {
  if (options_.slot_bytes == 0 || bytes > options_.slot_bytes) return kThroughNccl;
  return std::exchange(half_, 1 - half_);
}

void ListedExchange::AllReduce(const Tensor& x) {
  if (options_.place.tensor_parallel == 1) return;
  ReduceOp op;
  op.x = step_.pad(x);
  op.ranks = options_.place.tensor_parallel;
  const size_t bytes = PackedBytes(op.x);
  if (IsMultipleOf(kVectorBytes, op.x, {})) op.half = HalfFor(bytes);
  if (op.half != kThroughNccl) return step_.add(op);
  op.two_shot = op.ranks > 2 && bytes >= kMinTwoShotBytes && !HasGaps(op.x) &&
                op.x.rows * op.x.cols % (kSliceMultiple * op.ranks) == 0;
  op.parts = step_.scratch(op.two_shot ? bytes : bytes * static_cast<size_t>(op.ranks));
  if (op.parts != nullptr) step_.add(op);
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
  if (IsMultipleOf(kWordBytes, op.whole, ends)) op.half = HalfFor(PackedBytes(op.whole));
  if (op.half != kThroughNccl) return step_.add(op);
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
  if (const int32_t half = HalfFor(0); half != kThroughNccl)
    return step_.add(BarrierOp{.half = half});
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
  StageOp op{.x = step_.pad(x), .stage = stage, .send = send, .packed = nullptr};
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

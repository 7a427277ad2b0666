#include "kernels/cuda/exchange/listed_exchange.h"

#include "common/base/check.h"

namespace baton::cuda {
namespace {

// From this size on, three or more ranks add slices. Below, the second exchange costs more than the
// bytes that it saves.
constexpr size_t kMinTwoShotBytes = size_t{512} << 10;
// Slices begin at multiples of this many numbers, for vector accesses.
constexpr int64_t kSliceMultiple = 8;

size_t PackedBytes(const Tensor& x) {
  return static_cast<size_t>(x.rows * x.cols) * ShapeOf(x.dtype).bytes;
}

bool HasGaps(const Tensor& x) {
  return x.rows > 1 && x.stride != x.cols;
}

}  // namespace

void ListedExchange::AllReduce(const Tensor& x) {
  if (place_.tensor_parallel == 1) return;
  ReduceOp op;
  op.x = step_.pad(x);
  op.ranks = place_.tensor_parallel;
  const size_t bytes = PackedBytes(op.x);
  op.two_shot = op.ranks > 2 && bytes >= kMinTwoShotBytes && !HasGaps(op.x) &&
                op.x.rows * op.x.cols % (kSliceMultiple * op.ranks) == 0;
  op.parts = step_.scratch(op.two_shot ? bytes : bytes * static_cast<size_t>(op.ranks));
  if (op.parts != nullptr) step_.add(op);
}

void ListedExchange::Gather(const Tensor& whole, std::span<const int64_t> ends, bool to_all) {
  BATON_CHECK(
      ends.size() == static_cast<size_t>(place_.tensor_parallel) && ends.back() == whole.cols,
      "{} ends of {} columns",
      ends.size(),
      whole.cols);
  if (place_.tensor_parallel == 1) return;
  GatherColumnsOp op;
  op.whole = step_.pad(whole);
  op.ends.assign(ends.begin(), ends.end());
  op.to_all = to_all;
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
  if (place_.tensor_parallel == 1) return;
  std::byte* const marks = step_.scratch(kMarkBytes * static_cast<size_t>(place_.tensor_parallel));
  if (marks != nullptr) step_.add(BarrierOp{marks});
}

void ListedExchange::Stage(const Tensor& x, int32_t stage, bool send) {
  BATON_CHECK(stage >= 0 && stage < place_.pipeline_parallel && stage != place_.stage,
              "stage {} exchanges with stage {} of {}",
              place_.stage,
              stage,
              place_.pipeline_parallel);
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

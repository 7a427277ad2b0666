#include "kernels/cpu/cpu_exchange.h"

#include <numeric>

#include "common/base/check.h"
#include "common/base/clock.h"

namespace baton::cpu {
namespace {

CollectiveRows RowsOf(const Tensor& tensor) {
  return {tensor.data, tensor.rows, static_cast<size_t>(tensor.stride) * sizeof(float)};
}

}  // namespace

std::span<const size_t> CpuExchange::BytesOf(const Tensor& whole, std::span<const int64_t> ends) {
  BATON_CHECK(
      ends.size() == static_cast<size_t>(place_.tensor_parallel) && ends.back() == whole.cols,
      "{} ends of {} columns",
      ends.size(),
      whole.cols);
  ends_.clear();
  for (const int64_t end : ends) ends_.push_back(static_cast<size_t>(end) * sizeof(float));
  return ends_;
}

template <class Call>
void CpuExchange::Run(const Call& exchange) {
  if (failed()) return;
  const SteadyClock clock;
  const Time begin = clock.Now();
  status_ = exchange();
  time_spent_ += clock.Now() - begin;
}

void CpuExchange::AllGather(const Tensor& whole, std::span<const int64_t> ends) {
  const std::span<const size_t> bytes = BytesOf(whole, ends);
  if (place_.tensor_parallel == 1) return;
  Run([&] { return groups_.tensor->AllGather(RowsOf(whole), bytes); });
}

void CpuExchange::GatherToFirst(const Tensor& whole, std::span<const int64_t> ends) {
  const std::span<const size_t> bytes = BytesOf(whole, ends);
  if (place_.tensor_parallel == 1) return;
  Run([&] { return groups_.tensor->GatherToFirst(RowsOf(whole), bytes); });
}

void CpuExchange::ForFloats(const Tensor& x,
                            const std::function<Status(std::span<float>)>& exchange) {
  auto* const data = reinterpret_cast<float*>(x.data);
  const bool contiguous = x.stride == x.cols;
  const int64_t calls = contiguous ? 1 : x.rows;
  const int64_t floats = contiguous ? x.rows * x.cols : x.cols;
  for (int64_t i = 0; i < calls; ++i) {
    Run([&] { return exchange({data + i * x.stride, static_cast<size_t>(floats)}); });
  }
}

void CpuExchange::AllReduce(const Tensor& x) {
  if (place_.tensor_parallel == 1) return;
  ForFloats(x, [this](std::span<float> values) { return groups_.tensor->AllReduce(values); });
}

void CpuExchange::Barrier() {
  if (place_.tensor_parallel == 1) return;
  // A rank has the bytes of all ranks only after all have come.
  marks_.resize(static_cast<size_t>(place_.tensor_parallel));
  ends_.resize(marks_.size());
  std::iota(ends_.begin(), ends_.end(), size_t{1});
  Run([&] { return groups_.tensor->AllGather({marks_.data(), 1, marks_.size()}, ends_); });
}

void CpuExchange::SendToStage(const Tensor& x, int32_t stage) {
  ForFloats(x, [&](std::span<float> values) {
    return groups_.pipeline->Send(stage, std::as_bytes(values));
  });
}

void CpuExchange::ReceiveFromStage(const Tensor& x, int32_t stage) {
  ForFloats(x, [&](std::span<float> values) {
    return groups_.pipeline->Receive(stage, std::as_writable_bytes(values));
  });
}

bool CpuExchange::SendsAhead(size_t bytes) const {
  return groups_.pipeline != nullptr && bytes <= groups_.pipeline->bytes_ahead();
}

}  // namespace baton::cpu

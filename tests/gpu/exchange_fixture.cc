#include "tests/gpu/exchange_fixture.h"

#include <cuda_bf16.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "kernels/cuda/device/cuda_status.h"

namespace baton::cuda {

Status Rows::Allocate(
    DType dtype, int64_t rows, int64_t cols, int64_t stride, size_t scratch_bytes) {
  tensor_ = {.dtype = dtype, .rows = rows, .cols = cols, .stride = stride};
  BATON_RETURN_IF_ERROR(memory_.Reserve(bytes()));
  BATON_RETURN_IF_ERROR(scratch_.Reserve(scratch_bytes));
  tensor_.data = memory_.at();
  BATON_CUDA_RETURN_IF_ERROR(cudaMemset(memory_.at(), 0xff, bytes()));
  if (scratch_bytes > 0) {
    BATON_CUDA_RETURN_IF_ERROR(cudaMemset(scratch_.at(), 0xff, scratch_bytes));
  }
  return ToStatus(cudaStreamSynchronize(nullptr), "filling memory");
}

size_t Rows::bytes() const {
  return static_cast<size_t>(tensor_.rows * tensor_.stride) * ShapeOf(tensor_.dtype).bytes;
}

Status Rows::Write(const std::vector<float>& values) {
  std::vector<__nv_bfloat16> brains;
  if (tensor_.dtype == DType::kBF16) brains.assign(values.begin(), values.end());
  return memory_.Write(tensor_.dtype == DType::kBF16 ? std::as_bytes(std::span(brains))
                                                     : std::as_bytes(std::span(values)));
}

Status Rows::Empty(std::byte* at) {
  BATON_CUDA_RETURN_IF_ERROR(cudaMemset(at, 0xff, 4));
  return ToStatus(cudaStreamSynchronize(nullptr), "emptying a slot");
}

StatusOr<std::vector<float>> Rows::Read() const {
  std::vector<float> values(static_cast<size_t>(tensor_.rows * tensor_.stride));
  std::vector<__nv_bfloat16> brains;
  void* to = values.data();
  if (tensor_.dtype == DType::kBF16) {
    brains.resize(values.size());
    to = brains.data();
  }
  BATON_CUDA_RETURN_IF_ERROR(cudaMemcpy(to, memory_.at(), bytes(), cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < brains.size(); ++i) values[i] = __bfloat162float(brains[i]);
  return values;
}

float Rounded(DType dtype, float value) {
  return dtype == DType::kBF16 ? __bfloat162float(__float2bfloat16(value)) : value;
}

std::vector<float> Random(DType dtype, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = Rounded(dtype, std::ldexp(static_cast<float>(static_cast<int32_t>(random())), -28));
  }
  return values;
}

float SumOf(DType dtype, const std::vector<std::vector<float>>& parts, size_t i) {
  std::array<float, 8> sums;
  size_t count = parts.size();
  for (size_t part = 0; part < count; ++part) sums[part] = parts[part][i];
  for (; count > 1; count = (count + 1) / 2) {  // neighbours are added, until one sum is left
    for (size_t at = 0; at < count; at += 2) {
      sums[at / 2] = at + 1 < count ? sums[at] + sums[at + 1] : sums[at];
    }
  }
  return Rounded(dtype, sums[0]);
}

void ExpectSums(const Tensor& rows,
                const std::vector<std::vector<float>>& parts,
                int rank,
                const std::vector<float>& got,
                size_t nans) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (i < nans) {
      ASSERT_TRUE(std::isnan(got[i])) << "rank " << rank << " number " << i;
      continue;
    }
    float want = parts[static_cast<size_t>(rank)][i];
    if (static_cast<int64_t>(i) % rows.stride < rows.cols) want = SumOf(rows.dtype, parts, i);
    if (got[i] == want && std::signbit(got[i]) == std::signbit(want)) continue;
    FAIL() << "rank " << rank << " number " << i << ": " << got[i] << ", not " << want;
  }
}

void GpuExchange::SetUp() {
  const std::string missing = RankThreads::Missing(ranks());
  if (!missing.empty()) GTEST_SKIP() << "exchanges between GPUs were NOT tested: " << missing;
}

void GpuExchange::Open(bool pipeline, bool stage_slots) {
  const auto count = static_cast<size_t>(ranks());
  ranks_ = std::make_unique<RankThreads>(pipeline, std::chrono::seconds(30), ranks());
  exchanges_.resize(count);
  streams_.resize(count);
  rows_.resize(count);
  ForRanks([&](int rank) -> Status {
    BATON_ASSIGN_OR_RETURN(
        at(exchanges_, rank),
        GroupExchange::Create(
            ranks_->groups(rank), ranks_->device(rank).properties(), stage_slots));
    BATON_CUDA_RETURN_IF_ERROR(
        cudaStreamCreateWithFlags(&at(streams_, rank), cudaStreamNonBlocking));
    return OkStatus();
  });
}

void GpuExchange::TearDown() {
  if (ranks_ == nullptr) return;
  ForRanks([&](int rank) -> Status {
    at(rows_, rank).reset();
    at(exchanges_, rank).reset();
    BATON_CUDA_RETURN_IF_ERROR(cudaStreamDestroy(at(streams_, rank)));
    return OkStatus();
  });
}

void GpuExchange::Expect(const std::vector<Status>& results) {
  for (const Status& status : results) ASSERT_TRUE(status.ok()) << status;
}

StatusOr<Rows*> GpuExchange::Allocate(
    int rank, DType dtype, int64_t rows, int64_t cols, int64_t stride, size_t scratch_bytes) {
  at(rows_, rank) = std::make_unique<Rows>();
  BATON_RETURN_IF_ERROR(at(rows_, rank)->Allocate(dtype, rows, cols, stride, scratch_bytes));
  return at(rows_, rank).get();
}

GpuExchange::Ops GpuExchange::List(int rank,
                                   size_t slot_bytes,
                                   std::byte* scratch,
                                   const std::function<void(ListedExchange&)>& body,
                                   int32_t* tokens,
                                   int32_t count) {
  return List({.place = RankPlace::Of(ranks(), 1, rank), .slot_bytes = slot_bytes},
              scratch,
              body,
              tokens,
              count);
}

GpuExchange::Ops GpuExchange::List(const ListedExchange::Options& options,
                                   std::byte* scratch,
                                   const std::function<void(ListedExchange&)>& body,
                                   int32_t* tokens,
                                   int32_t count) {
  Ops ops;
  ListedExchange listed(options,
                        {.pad = [](const Tensor& tensor) { return tensor; },
                         .scratch = [scratch](size_t /*bytes*/) { return scratch; },
                         .add = [&ops](ExchangeOp op) { ops.push_back(std::move(op)); }});
  listed.BeginStep();
  body(listed);
  listed.EndStep(tokens, count);
  return ops;
}

Status GpuExchange::LaunchAll(int rank, const Ops& ops) {
  for (const ExchangeOp& op : ops) {
    BATON_RETURN_IF_ERROR(at(exchanges_, rank)->Launch(op, at(streams_, rank)));
  }
  return OkStatus();
}

StatusOr<cudaGraphExec_t> GpuExchange::Capture(int rank, const std::function<Status()>& body) {
  cudaStream_t const stream = at(streams_, rank);
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  const Status launched = body();
  cudaGraph_t captured = nullptr;
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamEndCapture(stream, &captured));
  BATON_RETURN_IF_ERROR(launched);
  cudaGraphExec_t executable = nullptr;
  BATON_CUDA_RETURN_IF_ERROR(cudaGraphInstantiate(&executable, captured, 0));
  cudaGraphDestroy(captured);
  return executable;
}

Status GpuExchange::Launch(int rank, const Ops& ops, bool graph) {
  cudaStream_t const stream = at(streams_, rank);
  if (!graph) {
    BATON_RETURN_IF_ERROR(LaunchAll(rank, ops));
    return ToStatus(cudaStreamSynchronize(stream), "an exchange");
  }
  BATON_ASSIGN_OR_RETURN(cudaGraphExec_t const executable,
                         Capture(rank, [&] { return LaunchAll(rank, ops); }));
  BATON_CUDA_RETURN_IF_ERROR(cudaGraphLaunch(executable, stream));
  Status ended = ToStatus(cudaStreamSynchronize(stream), "an exchange in a graph");
  cudaGraphExecDestroy(executable);
  return ended;
}

}  // namespace baton::cuda

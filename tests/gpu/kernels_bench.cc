#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/device/matrix.h"
#include "kernels/cuda/dma/block_checksum.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/sampling/sampling.h"
#include "tests/gpu/graph_timer.h"

// Prints one JSON line for each measurement of sampling, experts, block copies and checksums.
namespace baton::cuda {
namespace {

using testing::Check;
using testing::TimeGraph;
using testing::TimeStream;

constexpr int kRepeats = 11;

template <class T>
T Take(StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

void Print(const std::string& name, double microseconds, double gigabytes) {
  fmt::print("{{\"name\": \"{}\", \"us\": {:.2f}, \"gb_per_s\": {:.0f}}}\n",
             name,
             microseconds,
             gigabytes / microseconds * 1e6);
  std::fflush(stdout);
}

// The median time of one call of `body`, in microseconds, in a CUDA graph of `count` calls.
double TimeOne(cudaStream_t stream, int count, const std::function<void(int)>& body) {
  const auto all = [&] {
    for (int i = 0; i < count; ++i) body(i);
  };
  return TimeGraph(stream, kRepeats, all) / count;
}

// Approximately normal logits.
std::vector<float> MakeLogits(size_t count) {
  std::vector<float> logits(count);
  uint64_t state = 1;
  for (float& logit : logits) {
    logit = -6;
    for (int i = 0; i < 4; ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      logit += static_cast<float>(state >> 40) * (3.0f / (1 << 24));
    }
  }
  return logits;
}

void BenchSampling(cudaStream_t stream) {
  constexpr int32_t kVocabulary = 128256;
  constexpr size_t kMaxRows = 256;
  DeviceMemory memory;
  const std::vector<float> logits = MakeLogits(kMaxRows * kVocabulary);
  Check(memory.Reserve(logits.size() * sizeof(float)));
  Check(cudaMemcpy(
      memory.at(), logits.data(), logits.size() * sizeof(float), cudaMemcpyHostToDevice));
  const auto fixed = Take(StepBuffer::Create(size_t{1} << 20));
  const auto lists = Take(StepBuffer::Create(size_t{16} << 20));
  const auto sampling = Take(Sampling::Create());
  struct Choice {
    const char* name;
    float temperature = 1;
    int32_t top_k = 0;
    float top_p = 1;
    int32_t top_logprobs = -1;
    float repetition = 1;
  };
  const std::vector<TokenId> prompt(2000, 7);
  for (const Choice& choice :
       {Choice{.name = "greedy", .temperature = 0},
        Choice{.name = "temperature"},
        Choice{.name = "top_k_50", .top_k = 50},
        Choice{.name = "top_p_0.95", .top_p = 0.95f},
        Choice{.name = "top_p_0.95_cold", .temperature = 0.2f, .top_p = 0.95f},
        Choice{.name = "greedy_logprobs_20", .temperature = 0, .top_logprobs = 20},
        Choice{.name = "greedy_penalties", .temperature = 0, .repetition = 1.1f}}) {
    for (const int32_t count : {1, 8, 64, 256}) {
      SamplingParams params;
      params.temperature = choice.temperature;
      params.top_k = choice.top_k;
      params.top_p = choice.top_p;
      params.top_logprobs = choice.top_logprobs;
      params.repetition_penalty = choice.repetition;
      std::vector<SamplingRow> rows;
      for (int32_t i = 0; i < count; ++i) {
        rows.push_back({&params, static_cast<uint64_t>(i), prompt, {}, {}});
      }
      fixed->Clear();
      lists->Clear();
      const auto plan = Take(sampling->Plan(rows, count, kVocabulary, *fixed, *lists));
      Check(fixed->Upload(stream));
      Check(lists->Upload(stream));
      Tensor tensor;
      tensor.data = memory.at();
      tensor.rows = count;
      tensor.cols = tensor.stride = kVocabulary;
      const double time =
          TimeOne(stream, 20, [&](int) { Check(sampling->Launch(plan, tensor, stream)); });
      Print(fmt::format("sampling/{}/{}", choice.name, count),
            time,
            static_cast<double>(count) * kVocabulary * 4 / 1e9);
    }
  }
}

// A layer of experts.
struct ExpertsShape {
  std::string_view name;
  int64_t experts = 0;
  int32_t per_token = 0;
  int64_t hidden = 0;
  int64_t width = 0;
};
constexpr ExpertsShape kQwen3 = {"experts", 128, 8, 2048, 768};   // Qwen3-30B-A3B
constexpr ExpertsShape kGptOss = {"gpt_oss", 32, 4, 2880, 2880};  // gpt-oss-20b

enum class ExpertsType { kBf16, kFp8, kMxfp4 };

struct BenchedExperts {
  ExpertsShape shape;
  std::vector<std::byte> numbers;  // bf16
  std::vector<float> scales;
  std::unique_ptr<Matrix> router;
  std::vector<std::unique_ptr<Matrix>> gate_up;
  std::vector<std::unique_ptr<Matrix>> down;

  BenchedExperts(CudaDevice& device, const ExpertsShape& of, ExpertsType type)
      : shape(of),
        numbers(static_cast<size_t>(2 * of.width * of.hidden) * 2),
        scales(static_cast<size_t>(std::max(of.hidden, of.width)), 0x1p-7f) {
    const std::vector<float> random = MakeLogits(numbers.size() / 2);
    for (size_t i = 0; i < random.size(); ++i) {
      const __nv_bfloat16 number = __float2bfloat16(random[i] * 0.05f);
      std::memcpy(numbers.data() + 2 * i, &number, 2);
    }
    WeightLoader loader(device, type == ExpertsType::kFp8);
    const auto load = [&](int64_t rows, int64_t cols, bool is_expert) {
      HostMatrix matrix{DType::kBF16, rows, cols, numbers.data()};
      matrix.may_quantize = is_expert;
      if (is_expert && type == ExpertsType::kMxfp4) {
        matrix.dtype = DType::kFp4;
        matrix.use = WeightUse::kExperts;
        matrix.groups = {.scales = scales.data(),
                         .rows = rows,
                         .cols = 32,
                         .in_row = cols / 32,
                         .scale_type = ScaleType::kE8m0};
      }
      return Take(loader.Load({&matrix, 1}));
    };
    router = load(shape.experts, shape.hidden, false);
    for (int64_t e = 0; e < shape.experts; ++e) {
      gate_up.push_back(load(2 * shape.width, shape.hidden, true));
      down.push_back(load(shape.hidden, shape.width, true));
    }
  }
  ExpertArgs args() const { return {router.get(), gate_up, down, shape.per_token, true}; }
};

void BenchExperts(CudaDevice& device,
                  cudaStream_t stream,
                  const ExpertsShape& shape,
                  ExpertsType type) {
  constexpr int64_t kMaxRows = 8192;
  const BenchedExperts layer(device, shape, type);
  DeviceMemory x;
  DeviceMemory out;
  const auto row_bytes = static_cast<size_t>(shape.hidden) * 2;
  Check(x.Reserve(static_cast<size_t>(kMaxRows) * row_bytes));
  Check(out.Reserve(static_cast<size_t>(kMaxRows) * row_bytes));
  // Each row is another part of the numbers, so that rows choose different experts.
  for (int64_t row = 0; row < kMaxRows; ++row) {
    Check(cudaMemcpy(x.at(static_cast<size_t>(row) * row_bytes),
                     layer.numbers.data() + static_cast<size_t>(row * 331 % shape.width) * 2048,
                     row_bytes,
                     cudaMemcpyHostToDevice));
  }
  constexpr std::string_view kTypes[] = {"", "_fp8", "_mxfp4"};
  constexpr double kBits[] = {16, 8, 4.25};
  for (const bool wgmma : {false, true}) {
    ExpertsOptions options;
    options.wgmma_rows = wgmma ? 0 : kMaxRows * shape.per_token;
    const auto experts = Take(Experts::Create(device.properties(), options));
    for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096, 8192}) {
      const PreparedExperts prepared = Take(experts->Prepare(layer.args(), 0));
      DeviceMemory scratch;
      Check(scratch.Reserve(Experts::ScratchBytes(prepared, rows)));
      PreparedExperts placed = prepared;
      placed.scratch = scratch.at();
      Tensor in;
      in.data = x.at();
      in.dtype = DType::kBF16;
      in.rows = rows;
      in.cols = in.stride = shape.hidden;
      Tensor to = in;
      to.data = out.at();
      const double time =
          TimeOne(stream, 4, [&](int) { Check(experts->Launch(in, placed, to, stream)); });
      const int64_t pairs = rows * shape.per_token;
      const int64_t used = std::min(shape.experts, pairs);
      const auto numbers = static_cast<double>(3 * shape.hidden * shape.width);
      const double flops = 2 * static_cast<double>(pairs) * numbers;
      Print(fmt::format("{}{}/{}/{}/{:.0f}_tflops",
                        shape.name,
                        kTypes[static_cast<size_t>(type)],
                        wgmma ? "wgmma" : "mma",
                        rows,
                        flops / time / 1e6),
            time,
            static_cast<double>(used) * numbers * kBits[static_cast<size_t>(type)] / 8 / 1e9);
    }
  }
}

void BenchBlocks(cudaStream_t stream) {
  constexpr int32_t kBlocks = 1024;
  constexpr int64_t kBytes = int64_t{2} << 20;
  DeviceMemory arena;
  Check(arena.Reserve(static_cast<size_t>(kBlocks * kBytes)));
  BlockChecksums checksums;
  for (const int32_t count : {1, 8, 64, 512}) {
    std::vector<uint64_t> offsets;
    for (int32_t i = 0; i < count; ++i) {
      offsets.push_back(static_cast<uint64_t>(i * 37 % kBlocks) * kBytes);
    }
    const double gigabytes = static_cast<double>(count) * kBytes / 1e9;
    std::vector<uint64_t> out(offsets.size());
    const double checksum = TimeStream(stream, kRepeats, [&] {
      Check(checksums.Compute(arena.at(), offsets, kBytes, out, stream));
    });
    Print(fmt::format("block_checksum/{}", count), checksum, gigabytes);
  }
}

// `only`: the name of the experts to measure, alone; empty: everything.
int Main(std::string_view only) {
  auto device = CudaDevice::Open(0);
  Check(device.status());
  cudaStream_t stream;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  if (only.empty()) BenchSampling(stream);
  for (const ExpertsShape& shape : {kQwen3, kGptOss}) {
    if (!only.empty() && only != shape.name) continue;
    for (const ExpertsType type : {ExpertsType::kBf16, ExpertsType::kFp8, ExpertsType::kMxfp4}) {
      BenchExperts(**device, stream, shape, type);
    }
  }
  if (only.empty()) BenchBlocks(stream);
  return 0;
}

}  // namespace
}  // namespace baton::cuda

int main(int argc, char** argv) {
  return baton::cuda::Main(argc > 1 ? argv[1] : "");
}

#include <benchmark/benchmark.h>

#include "bench/kernels/synthetic.h"
#include "common/base/check.h"

namespace baton::bench {
namespace {

SamplingParams ParamsOf(int64_t kind) {
  SamplingParams params;
  params.temperature = kind == 0 || kind == 1 ? 0.0f : 0.8f;
  if (kind == 1) params.top_logprobs = 5;
  if (kind == 3) params.top_k = 40;
  if (kind == 4) params.top_p = 0.95f;
  if (kind == 5) params.min_p = 0.05f;
  return params;
}

// {vocabulary, kind}
void Sampling(benchmark::State& state) {
  constexpr const char* kKinds[] = {
      "greedy", "greedy with 5 logprobs", "temperature", "top-k 40", "top-p 0.95", "min-p 0.05"};
  Backend backend(1);
  const SamplingParams params = ParamsOf(state.range(1));
  const auto values = RandomValues(static_cast<size_t>(state.range(0)));
  std::vector<float> logits(values.size());
  const Tensor view{
      reinterpret_cast<std::byte*>(logits.data()), DType::kF32, 1, state.range(0), state.range(0)};
  SamplingRow row;
  row.params = &params;
  SampledToken token;
  while (state.KeepRunning()) {
    // Sampling may overwrite its input, so each iteration starts from a copy. For a vocabulary of
    // 150,000 tokens the copy is about 10 µs of the measured time.
    for (size_t i = 0; i < values.size(); ++i) logits[i] = values[i] * 3;
    ++row.position;
    backend.ops->Sample(view, {&row, 1}, {&token, 1});
  }
  state.SetLabel(kKinds[state.range(1)]);
}

}  // namespace

void RegisterSampling() {
  auto* sampling = benchmark::RegisterBenchmark("Sample", Sampling);
  sampling->ArgNames({"vocabulary", "kind"});
  for (const int64_t vocabulary : {49152, 151936}) {
    for (int64_t kind = 0; kind < 6; ++kind) sampling->Args({vocabulary, kind});
  }
  sampling->Unit(benchmark::kMicrosecond);
}

}  // namespace baton::bench

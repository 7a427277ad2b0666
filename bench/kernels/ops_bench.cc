#include <benchmark/benchmark.h>

#include "bench/kernels/synthetic.h"
#include "common/base/check.h"

namespace baton::bench {
namespace {

constexpr GroupForm kGroupForms[] = {
    {"W4A16 g32 f16", 1, 32, DType::kU4, ScaleType::kF16},
    {"W4A16 g128 f16", 1, 128, DType::kU4, ScaleType::kF16},
    {"W4A16 g128 bf16", 1, 128, DType::kU4, ScaleType::kBF16},
    {"GPTQ g32 zeros", 1, 32, DType::kU4, ScaleType::kF16, true},
    {"AWQ g128", 1, 128, DType::kU4, ScaleType::kF16, true},
    {"INT8 channels", 1, 0, DType::kI8, ScaleType::kF32},
    {"FP8 blocks", 128, 128, DType::kFp8, ScaleType::kF32},
    {"FP8 channels", 1, 0, DType::kFp8, ScaleType::kBF16},
    {"MXFP4", 1, 32, DType::kFp4, ScaleType::kE8m0},
    {"NVFP4", 1, 16, DType::kFp4, ScaleType::kFp8},
};

// Multiplies with matrices that `make` makes of backend, rows and columns.
template <class Make>
void RunProduct(benchmark::State& state, const Make& make) {
  Backend backend(static_cast<int>(state.range(0)));
  const int64_t rows = state.range(1);
  const int64_t cols = state.range(2);
  const int64_t m = state.range(3);
  // Enough copies that the weights are read from memory and not from a cache, as in a whole step.
  std::vector<std::unique_ptr<Matrix>> copies;
  size_t bytes = 0;
  do {
    copies.push_back(make(*backend.ops, rows, cols));
    bytes += copies.back()->bytes();
  } while (bytes < size_t{100} << 20);
  const Activations x(m, cols);
  const Activations out(m, rows);
  size_t next = 0;
  while (state.KeepRunning()) {
    backend.ops->MatMul(x.view(m), *copies[next], nullptr, out.view(m));
    next = (next + 1) % copies.size();
  }
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(copies[0]->bytes()) / 1e9,
                                              benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(rows * cols * m),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

// {threads, rows, cols, m, dtype}
void Product(benchmark::State& state) {
  const auto dtype = static_cast<DType>(state.range(4));
  RunProduct(state, [&](Ops& ops, int64_t rows, int64_t cols) {
    return RandomMatrix(ops, dtype, rows, cols);
  });
  state.SetLabel(std::string(Name(dtype)));
}

// {threads, rows, cols, m, index in kGroupForms}
void ProductOfGroups(benchmark::State& state) {
  const GroupForm& form = kGroupForms[state.range(4)];
  RunProduct(state, [&](Ops& ops, int64_t rows, int64_t cols) {
    return RandomGroups(ops, form, rows, cols);
  });
  state.SetLabel(form.name);
}

// {threads, sequences, rows, context, kv}
void AttentionOp(benchmark::State& state) {
  constexpr HeadShape kHeads{9, 3, 64};
  Backend backend(static_cast<int>(state.range(0)));
  const auto sequences = static_cast<int32_t>(state.range(1));
  const auto rows = static_cast<int32_t>(state.range(2));
  const auto context = static_cast<int32_t>(state.range(3));
  const DType dtype = state.range(4) == 0 ? DType::kF32 : DType::kBF16;
  Sequences cache(*backend.ops, dtype, 1, kHeads, sequences, context + rows);
  const Activations qkv(int64_t{sequences} * rows, int64_t{15} * 64);
  const Activations out(int64_t{sequences} * rows, int64_t{9} * 64);
  const auto all = int64_t{sequences} * rows;
  const Status begun = backend.ops->BeginStep(cache.Step(context, rows), cache.view());
  BATON_CHECK(begun.ok(), "{}", Message(begun));
  while (state.KeepRunning()) {
    backend.ops->Attention(qkv.view(all), {kHeads, 0, 0.125f, 0}, out.view(all));
  }
  const double pairs = static_cast<double>(all) * (context + rows / 2.0);
  state.counters["GFLOP/s"] =
      benchmark::Counter(pairs * 9 * 64 * 4e-9, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

void RegisterOps() {
  auto* product = benchmark::RegisterBenchmark("MatMul", Product);
  product->ArgNames({"threads", "rows", "cols", "m", "dtype"});
  const auto q4 = static_cast<int64_t>(DType::kQ4_1);
  const auto q8 = static_cast<int64_t>(DType::kQ8_0);
  for (const int64_t m : {1, 8, 64, 512}) {
    for (const int64_t threads : {1, 2}) {
      product->Args({threads, 1536, 576, m, q4});
      product->Args({threads, 576, 1536, m, q4});
      product->Args({threads, 1536, 576, m, q8});
      product->Args({threads, 1536, 576, m, static_cast<int64_t>(DType::kF32)});
      product->Args({threads, 1536, 576, m, static_cast<int64_t>(DType::kBF16)});
    }
  }
  for (const DType dtype : {DType::kF16,
                            DType::kQ4_0,
                            DType::kQ5_0,
                            DType::kQ5_1,
                            DType::kQ4_K,
                            DType::kQ5_K,
                            DType::kQ6_K}) {
    for (const int64_t m : {1, 8, 64}) {
      product->Args({2, 2048, 2048, m, static_cast<int64_t>(dtype)});
    }
  }
  product->UseRealTime()->Unit(benchmark::kMicrosecond);
  auto* groups = benchmark::RegisterBenchmark("MatMulOfGroups", ProductOfGroups);
  groups->ArgNames({"threads", "rows", "cols", "m", "form"});
  auto* peers = benchmark::RegisterBenchmark("MatMulBesideGroups", Product);
  peers->ArgNames({"threads", "rows", "cols", "m", "dtype"});
  for (const int64_t m : {1, 8, 64}) {
    for (const DType dtype : {DType::kQ4_1, DType::kQ4_0, DType::kQ8_0, DType::kBF16}) {
      peers->Args({2, 2048, 2048, m, static_cast<int64_t>(dtype)});
    }
    for (int64_t form = 0; form < std::ssize(kGroupForms); ++form) {
      groups->Args({2, 2048, 2048, m, form});
    }
  }
  groups->UseRealTime()->Unit(benchmark::kMicrosecond);
  peers->UseRealTime()->Unit(benchmark::kMicrosecond);
  auto* attention = benchmark::RegisterBenchmark("Attention", AttentionOp);
  attention->ArgNames({"threads", "sequences", "rows", "context", "kv"});
  attention->Args({2, 1, 1, 512, 0})->Args({2, 1, 1, 512, 1})->Args({2, 8, 1, 512, 0});
  attention->Args({1, 1, 512, 0, 0})->Args({2, 1, 512, 0, 0})->Args({2, 1, 512, 0, 1});
  attention->Args({2, 1, 256, 4096, 0})->UseRealTime()->Unit(benchmark::kMicrosecond);
}

}  // namespace baton::bench

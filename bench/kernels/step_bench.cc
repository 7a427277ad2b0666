#include <cmath>

#include <benchmark/benchmark.h>

#include "bench/kernels/synthetic.h"
#include "common/base/check.h"

namespace baton::bench {
namespace {

constexpr int32_t kLayers = 30;
constexpr int64_t kHidden = 576;
constexpr int64_t kWidth = 1536;
constexpr int64_t kVocabulary = 49152;
constexpr HeadShape kHeads{9, 3, 64};
constexpr int64_t kQkv = int64_t{9 + 2 * 3} * 64;

// A model with SmolLM2-135M's shape: Q4_1 layers and a tied Q8_0 embedding table.
class Model final {
 public:
  Model(int threads, DType kv, int32_t sequences, int32_t tokens)
      : backend_(threads),
        ops_(*backend_.ops),
        sequences_(ops_, kv, kLayers, kHeads, sequences, tokens),
        table_(RandomMatrix(ops_, DType::kQ8_0, kVocabulary, kHidden)) {
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      qkv_.push_back(RandomMatrix(ops_, DType::kQ4_1, kQkv, kHidden));
      o_.push_back(RandomMatrix(ops_, DType::kQ4_1, kHidden, kHidden));
      gate_up_.push_back(RandomGateUp(ops_, DType::kQ4_1, kWidth, kHidden));
      down_.push_back(RandomMatrix(ops_, DType::kQ4_1, kHidden, kWidth));
    }
    std::vector<float> frequencies;
    for (int i = 0; i < 32; ++i) frequencies.push_back(std::pow(1e5f, -2.0f * i / 64.0f));
    frequencies_ = *ops_.LoadVector(frequencies);
    norm_ = *ops_.LoadVector(std::vector<float>(kHidden, 1.0f));
    params_.temperature = 0;
  }

  void Run(int32_t context, int32_t rows_each) {
    const StepInput input = sequences_.Step(context, rows_each);
    const auto rows = static_cast<int64_t>(input.tokens.size());
    const Status begun = ops_.BeginStep(input, sequences_.view());
    BATON_CHECK(begun.ok(), "{}", Message(begun));
    Reserve(rows);
    const Tensor x = x_->view(rows);
    const Tensor h = h_->view(rows);
    const Tensor qkv = qkv_rows_->view(rows);
    const Tensor mixed = mixed_->view(rows);
    const Tensor wide = wide_->view(rows);
    RopeArgs rope;
    rope.inverse_frequencies = frequencies_.get();
    rope.pairing = RopePairing::kAdjacent;
    ops_.Embed(*table_, 0, x);
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      const auto i = static_cast<size_t>(layer);
      if (layer == 0) {
        ops_.RmsNorm(x, *norm_, 1e-5f, h);
      } else {
        ops_.AddRmsNorm(x, mixed, *norm_, 1e-5f, h);
      }
      ops_.MatMul(h, *qkv_[i], nullptr, qkv);
      ops_.RopeAndWriteKv(qkv, kHeads, rope, layer);
      ops_.Attention(qkv, {kHeads, layer, 0.125f, 0}, h);
      ops_.MatMul(h, *o_[i], nullptr, mixed);
      ops_.AddRmsNorm(x, mixed, *norm_, 1e-5f, h);
      ops_.MatMulSiluMul(h, *gate_up_[i], nullptr, wide);
      ops_.MatMul(wide, *down_[i], nullptr, mixed);
    }
    const auto last = static_cast<int64_t>(input.logit_rows.size());
    const Tensor chosen = h_->view(last);
    ops_.AddRmsNorm(x, mixed, *norm_, 1e-5f, h);
    ops_.GatherLogitRows(h, chosen);
    const Tensor logits = logits_->view(last);
    ops_.MatMul(chosen, *table_, nullptr, logits);
    std::vector<SamplingRow> sampling(static_cast<size_t>(last));
    for (SamplingRow& row : sampling) row.params = &params_;
    std::vector<SampledToken> tokens(sampling.size());
    ops_.Sample(logits, sampling, tokens);
    const Status ended = ops_.EndStep();
    BATON_CHECK(ended.ok(), "{}", Message(ended));
  }

  double bytes() const {
    double sum = static_cast<double>(table_->bytes());
    for (const auto* group : {&qkv_, &o_, &gate_up_, &down_}) {
      for (const auto& matrix : *group) sum += static_cast<double>(matrix->bytes());
    }
    return sum;
  }

 private:
  void Reserve(int64_t rows) {
    if (rows <= reserved_) return;
    reserved_ = rows;
    x_ = std::make_unique<Activations>(rows, kHidden);
    h_ = std::make_unique<Activations>(rows, kHidden);
    mixed_ = std::make_unique<Activations>(rows, kHidden);
    qkv_rows_ = std::make_unique<Activations>(rows, kQkv);
    wide_ = std::make_unique<Activations>(rows, kWidth);
    logits_ = std::make_unique<Activations>(64, kVocabulary);
  }

  Backend backend_;
  Ops& ops_;
  Sequences sequences_;
  std::unique_ptr<Matrix> table_;
  std::vector<std::unique_ptr<Matrix>> qkv_, o_, gate_up_, down_;
  std::unique_ptr<Vector> frequencies_, norm_;
  SamplingParams params_;
  int64_t reserved_ = 0;
  std::unique_ptr<Activations> x_, h_, mixed_, qkv_rows_, wide_, logits_;
};

DType KvType(int64_t index) {
  return index == 0 ? DType::kF32 : index == 1 ? DType::kF16 : DType::kBF16;
}

// {threads, sequences, context, kv type}
void DecodeStep(benchmark::State& state) {
  const auto sequences = static_cast<int32_t>(state.range(1));
  const auto context = static_cast<int32_t>(state.range(2));
  Model model(static_cast<int>(state.range(0)), KvType(state.range(3)), sequences, context + 1);
  model.Run(0, context);
  model.Run(context, 1);
  while (state.KeepRunning()) model.Run(context, 1);
  state.counters["tokens/s"] =
      benchmark::Counter(sequences, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["weights_GB/s"] =
      benchmark::Counter(model.bytes() / 1e9, benchmark::Counter::kIsIterationInvariantRate);
}

// {threads, tokens, kv type}
void PromptStep(benchmark::State& state) {
  const auto tokens = static_cast<int32_t>(state.range(1));
  Model model(static_cast<int>(state.range(0)), KvType(state.range(2)), 1, tokens);
  model.Run(0, tokens);
  while (state.KeepRunning()) model.Run(0, tokens);
  state.counters["tokens/s"] =
      benchmark::Counter(tokens, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GFLOP/s"] =
      benchmark::Counter(0.212 * tokens, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

void RegisterSteps() {
  auto* decode = benchmark::RegisterBenchmark("DecodeStep", DecodeStep);
  decode->ArgNames({"threads", "sequences", "context", "kv"});
  for (const int threads : {1, 2}) {
    for (const int sequences : {1, 2, 4, 8, 16, 32}) decode->Args({threads, sequences, 64, 0});
  }
  for (const int kv : {0, 1, 2}) decode->Args({2, 1, 512, kv});
  decode->Args({2, 8, 512, 2})->UseRealTime()->Unit(benchmark::kMillisecond);
  auto* prompt = benchmark::RegisterBenchmark("PromptStep", PromptStep);
  prompt->ArgNames({"threads", "tokens", "kv"});
  prompt->Args({1, 512, 0})->Args({2, 512, 0})->Args({2, 512, 2})->Args({2, 64, 0});
  prompt->Args({2, 2048, 0})->UseRealTime()->Unit(benchmark::kMillisecond);
}

}  // namespace baton::bench

#include "tests/gpu/attention_harness.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "kernels/dequantize.h"
#include "tests/gpu/test_device.h"

namespace baton::cuda::testing {
namespace {

constexpr uint16_t kPattern = 0x4bad;

// The rows to compare, as (first, count): all rows of a short sequence, else some at both ends and
// in the middle.
std::vector<std::pair<int32_t, int32_t>> Samples(int32_t rows) {
  if (rows <= 300) return {{0, rows}};
  return {{0, 70}, {rows / 2, 70}, {rows - 70, 70}};
}

std::unique_ptr<Memory> Uploaded(const std::vector<float>& numbers) {
  const size_t bytes = numbers.size() * sizeof(float);
  auto memory = std::make_unique<Memory>(bytes);
  Check(cudaMemcpy(memory->data(), numbers.data(), bytes, cudaMemcpyHostToDevice), "Uploaded");
  return memory;
}

}  // namespace

bool IsHopper() {
  return MayRun(KernelFamily::kHopper, TestedDevice());
}

int32_t TokensOf(const Lengths& lengths) {
  int32_t tokens = 256;
  for (const auto& [context, rows] : lengths) tokens += (context + rows + 255) / 256 * 256;
  return tokens;
}

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}

void Check(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, std::string(Message(status)).c_str());
  std::abort();
}

Memory::Memory(size_t bytes) : size_(bytes) {
  Check(cudaMalloc(reinterpret_cast<void**>(&data_), std::max<size_t>(bytes, 256)), "cudaMalloc");
}

Memory::~Memory() {
  cudaFree(data_);
}

Fixture::Fixture(const FixtureShape& shape, const AttentionOptions& options) : shape_(shape) {
  if (shape_.heads.all == 0) shape_.heads.all = shape.shape.kv_heads;
  auto attention = Attention::Create(TestedDevice(), options);
  Check(attention.status(), "Attention::Create");
  attention_ = *std::move(attention);
  Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  auto fixed = StepBuffer::Create(1 << 16);
  auto lists = StepBuffer::Create(1 << 16);
  Check(fixed.status(), "StepBuffer");
  Check(lists.status(), "StepBuffer");
  fixed_ = *std::move(fixed);
  lists_ = *std::move(lists);
  kv_.dtype = shape.kv_dtype;
  kv_.layers = shape.layers;
  kv_.kv_heads = shape.shape.kv_heads;
  kv_.head_dim = shape.shape.head_dim;
  kv_.block_tokens = shape.block_tokens;
  const auto bytes = static_cast<int64_t>(ShapeOf(shape.kv_dtype).bytes);
  kv_.head_stride = bytes * shape.block_tokens * shape.shape.head_dim;
  kv_.value_offset = kv_.head_stride * shape.shape.kv_heads;
  kv_.layer_stride = 2 * kv_.value_offset;
  kv_.block_stride = kv_.layer_stride * shape.layers;
  kv_.blocks = shape.tokens / shape.block_tokens + 1;
  arena_ = std::make_unique<Memory>(static_cast<size_t>(kv_.blocks * kv_.block_stride));
  kv_.base = arena_->data();
  for (int32_t i = 0; i < kv_.blocks; ++i) shuffled_.push_back(i);
  std::shuffle(shuffled_.begin(), shuffled_.end(), std::mt19937(5));
  if (shape.shape.has_sinks) {
    constexpr float kSinks[] = {-4, 0.5f, 3, 7, 1.5f};
    const int32_t first = shape_.heads.first * shape.shape.group();
    std::vector<float> sinks;
    for (int32_t head = 0; head < shape.shape.q_heads; ++head) {
      sinks.push_back(kSinks[(first + head) % 5]);
    }
    sinks_ = Uploaded(sinks);
  }
  if (shape.kv_dtype != DType::kFp8) return;
  std::vector<float> scales;
  for (const float first : {0.5f, 0.75f}) {  // of K, then of V
    for (int32_t i = 0; i < kv_.kv_heads; ++i) {
      scales.push_back(first + 0.07f * static_cast<float>(shape_.heads.first + i));
    }
  }
  kv_scales_ = Uploaded(scales);
}

const float* Fixture::kv_scales() const {
  return kv_scales_ == nullptr ? nullptr : reinterpret_cast<const float*>(kv_scales_->data());
}

const float* Fixture::sinks() const {
  return sinks_ == nullptr ? nullptr : reinterpret_cast<const float*>(sinks_->data());
}

void Fixture::Begin(const Lengths& lengths,
                    int32_t padded_rows,
                    const std::vector<int32_t>& numbers) {
  const AttentionShape& shape = shape_.shape;
  tokens_.clear();
  positions_.clear();
  sequences_.clear();
  tables_.clear();
  logit_rows_.clear();
  for (const auto& [context, rows] : lengths) {
    SequenceRows sequence;
    sequence.first_row = static_cast<int32_t>(tokens_.size());
    sequence.row_count = rows;
    sequence.context = context;
    sequence.first_block = static_cast<int32_t>(tables_.size());
    sequences_.push_back(sequence);
    const int32_t blocks = (context + rows + kv_.block_tokens - 1) / kv_.block_tokens;
    for (int32_t i = 0; i < blocks; ++i) tables_.push_back(shuffled_.at(tables_.size()));
    for (int32_t i = 0; i < rows; ++i) {
      tokens_.push_back(0);
      positions_.push_back(context + i);
    }
    logit_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
  }
  input_ = {tokens_, positions_, sequences_, tables_, logit_rows_};
  FillNan(arena_->data(), arena_->size(), stream_);
  const int64_t q_width = int64_t{shape.q_heads} * shape.head_dim;
  const int64_t kv_width = int64_t{shape.kv_heads} * shape.head_dim;
  const int64_t total = std::max<int64_t>(rows(), padded_rows);
  const int64_t width = q_width + 2 * kv_width;
  if (qkv_ == nullptr || qkv_->size() < static_cast<size_t>(2 * total * width)) {
    qkv_ = std::make_unique<Memory>(2 * total * width);
    out_ = std::make_unique<Memory>(2 * total * q_width);
  }
  qkv_view_ = {qkv_->data(), DType::kBF16, total, width, width};
  out_view_ = {out_->data(), DType::kBF16, total, q_width, q_width};
  const Memory table(tables_.size() * sizeof(int32_t));
  Check(cudaMemcpyAsync(table.data(),
                        tables_.data(),
                        tables_.size() * sizeof(int32_t),
                        cudaMemcpyHostToDevice,
                        stream_),
        "tables");
  FillNan(qkv_->data(), 2 * total * width, stream_);
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const SequenceRows& s = sequences_[i];
    const int number = numbers.empty() ? static_cast<int>(i) : numbers[i];
    const auto* blocks = reinterpret_cast<const int32_t*>(table.data()) + s.first_block;
    WriteKv(kv_, shape_.heads, blocks, number, s.context + s.row_count, stream_);
    WriteQkv(shape,
             shape_.heads,
             qkv_->data() + int64_t{2} * s.first_row * width,
             width,
             number,
             s.context,
             s.row_count,
             shape_.layers - 1,
             stream_);
  }
  ClearOut();
  Check(cudaStreamSynchronize(stream_), "Begin");
  for (;;) {
    fixed_->Clear();
    lists_->Clear();
    Check(step_.Build(input_, kv_, padded_rows, *fixed_, *lists_), "StepLayout::Build");
    if (*lists_->Fits()) break;
  }
  Check(lists_->Upload(stream_), "Upload");
}

AttentionPlan Fixture::Plan() {
  for (;;) {
    fixed_->Clear();
    lists_->Clear();
    Check(step_.Build(input_, kv_, step_.recorded ? step_.rows : 0, *fixed_, *lists_), "Build");
    auto plan = attention_->Plan(shape_.shape, step_, kv_, *fixed_);
    Check(plan.status(), "Attention::Plan");
    const auto fits = fixed_->Fits();
    Check(fits.status(), "Fits");
    if (!*fits) continue;
    Check(fixed_->Upload(stream_), "Upload");
    Check(cudaStreamSynchronize(stream_), "Plan");
    return *plan;
  }
}

void Fixture::Launch(const AttentionPlan& plan, int32_t layer) {
  LaunchTo(plan, layer, {});
}

void Fixture::LaunchTo(const AttentionPlan& plan, int32_t layer, const Fp8Rows& fp8_out) {
  Check(attention_->Launch(plan,
                           {.kv = kv_,
                            .layer = layer,
                            .kv_scales = kv_scales(),
                            .sinks = sinks(),
                            .qkv = qkv_view_,
                            .out = out_view_,
                            .fp8_out = fp8_out,
                            .stream = stream_}),
        "Attention::Launch");
}

std::vector<float> Fixture::LaunchFp8(const AttentionPlan& plan, int32_t layer) {
  return Fp8Numbers([&](const Fp8Rows& fp8_out) { LaunchTo(plan, layer, fp8_out); });
}

std::vector<float> Fixture::QuantizedOut() {
  return Fp8Numbers([&](const Fp8Rows& fp8_out) {
    Check(LaunchQuantize(out_view_, fp8_out, stream_), "LaunchQuantize");
  });
}

std::vector<float> Fixture::Fp8Numbers(const std::function<void(const Fp8Rows&)>& write) {
  const int64_t cols = out_view_.cols;
  const Memory memory(Fp8Rows::Bytes(out_view_.rows, cols));
  FillNan(memory.data(), memory.size(), stream_);
  write(Fp8Rows::At(memory.data(), out_view_.rows, cols));
  std::vector<std::byte> bytes(memory.size());
  Check(cudaMemcpyAsync(bytes.data(), memory.data(), bytes.size(), cudaMemcpyDeviceToHost, stream_),
        "Fp8Numbers");
  Check(cudaStreamSynchronize(stream_), "Fp8Numbers");
  const Fp8Rows copy = Fp8Rows::At(bytes.data(), out_view_.rows, cols);
  std::vector<float> numbers(static_cast<size_t>(rows() * cols));
  Dequantize(DType::kFp8, {copy.data, numbers.size()}, numbers);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] *= copy.scales[static_cast<int64_t>(i) / cols];
  }
  return numbers;
}

void Fixture::ClearOut() {
  const std::vector<uint16_t> pattern(out_->size() / 2, kPattern);
  Check(
      cudaMemcpyAsync(out_->data(), pattern.data(), out_->size(), cudaMemcpyHostToDevice, stream_),
      "ClearOut");
  Check(cudaStreamSynchronize(stream_), "ClearOut");
}

double Fixture::Error(int32_t layer) {
  Check(cudaStreamSynchronize(stream_), "attention");
  const AttentionShape& shape = shape_.shape;
  const Memory table(tables_.size() * sizeof(int32_t));
  Check(cudaMemcpyAsync(table.data(),
                        tables_.data(),
                        tables_.size() * sizeof(int32_t),
                        cudaMemcpyHostToDevice,
                        stream_),
        "tables");
  double worst = 0;
  for (const SequenceRows& s : sequences_) {
    for (const auto& [first, count] : Samples(s.row_count)) {
      const size_t jobs = static_cast<size_t>(count) * shape.q_heads;
      const int32_t length = s.context + s.row_count;
      const Memory scores(jobs * length * sizeof(float));
      const Memory errors(jobs * sizeof(float));
      const int64_t row = s.first_row + first;
      Computed computed;
      computed.table = reinterpret_cast<const int32_t*>(table.data()) + s.first_block;
      computed.first_position = s.context + first;
      computed.rows = count;
      computed.q = qkv_view_.data + 2 * row * qkv_view_.stride;
      computed.q_stride = qkv_view_.stride;
      computed.out = out_view_.data + 2 * row * out_view_.stride;
      computed.out_stride = out_view_.stride;
      Compare(shape,
              kv_,
              kv_scales(),
              sinks(),
              layer,
              computed,
              reinterpret_cast<float*>(scores.data()),
              reinterpret_cast<float*>(errors.data()),
              stream_);
      std::vector<float> host(jobs);
      Check(cudaMemcpyAsync(
                host.data(), errors.data(), jobs * sizeof(float), cudaMemcpyDeviceToHost, stream_),
            "Compare");
      Check(cudaStreamSynchronize(stream_), "Compare");
      for (const float error : host) {
        worst = std::max<double>(worst, std::isfinite(error) ? error : 1e9);
      }
    }
  }
  return worst;
}

bool Fixture::PaddingUntouched() {
  const auto bits = Rows(rows(), static_cast<int32_t>(out_view_.rows) - rows());
  return std::all_of(bits.begin(), bits.end(), [](uint16_t b) { return b == kPattern; });
}

std::vector<uint16_t> Fixture::Rows(int32_t first, int32_t count) {
  std::vector<uint16_t> bits(static_cast<size_t>(count * out_view_.stride));
  Check(cudaStreamSynchronize(stream_), "Rows");
  Check(cudaMemcpy(bits.data(),
                   out_view_.data + int64_t{2} * first * out_view_.stride,
                   2 * bits.size(),
                   cudaMemcpyDeviceToHost),
        "Rows");
  return bits;
}

}  // namespace baton::cuda::testing

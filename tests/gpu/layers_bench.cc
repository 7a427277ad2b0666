#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/base/check.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/input/step_buffer.h"
#include "kernels/cuda/input/step_layout.h"
#include "kernels/cuda/latent/latent_attention.h"
#include "kernels/cuda/latent/latent_kernels.h"
#include "kernels/cuda/recurrent/chunk_rows.h"
#include "kernels/cuda/recurrent/recurrent_kernels.h"
#include "tests/gpu/graph_timer.h"

// Prints one JSON line for each measurement of a layer with latents (DeepSeek-V3) and of a gated
// delta net (Qwen3-Next): microseconds, and how long its bytes take at the rate of a copy. The
// argument is a part of the names of what is measured, as "latents/64x8192" or "delta_net"; without
// it, all is.
namespace baton::cuda {
namespace {

using testing::Check;
using testing::TimeGraph;
using testing::TimeStream;

constexpr int kRepeats = 11;
constexpr int32_t kBlockTokens = 16;

template <class T>
T Take(StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

// Device memory with small random numbers, which are numbers in bf16 and in float32.
class Numbers {
 public:
  explicit Numbers(size_t bytes) {
    Check(memory_.Reserve(bytes));
    std::mt19937 random(3);
    std::vector<uint32_t> words(size_t{1} << 20);
    for (uint32_t& word : words) word = (random() & 0x807f807fu) | 0x3d003d00u;
    for (size_t done = 0; done < bytes; done += words.size() * 4) {
      Check(cudaMemcpy(memory_.at() + done,
                       words.data(),
                       std::min(words.size() * 4, bytes - done),
                       cudaMemcpyHostToDevice));
    }
  }
  std::byte* at() const { return memory_.at(); }
  Tensor Rows(DType dtype, int64_t rows, int64_t cols) const {
    return {memory_.at(), dtype, rows, cols, cols};
  }

 private:
  DeviceMemory memory_;
};

// Bytes per microsecond of a copy within the device, both directions counted.
double CopyRate(cudaStream_t stream) {
  constexpr size_t kBytes = size_t{1} << 30;
  const Numbers from(kBytes);
  const Numbers to(kBytes);
  // In a graph, a copy engine would make the copy, at two thirds of the rate.
  const double time = TimeStream(stream, kRepeats, [&] {
    Check(cudaMemcpyAsync(to.at(), from.at(), kBytes, cudaMemcpyDeviceToDevice, stream));
  });
  return 2.0 * static_cast<double>(kBytes) / time;
}

// A step of decoding sequences, or of one prompt chunk.
struct Step {
  // `rows` sequences with one row each, which see `context` positions before theirs.
  static Step Decode(int32_t rows, int32_t context, int32_t state_blocks) {
    Step step;
    step.state_blocks = state_blocks;
    for (int32_t i = 0; i < rows; ++i) step.Add(1, context);
    return step;
  }
  static Step Chunk(int32_t rows, int32_t context, int32_t state_blocks = 0) {
    Step step;
    step.state_blocks = state_blocks;
    step.Add(rows, context);
    return step;
  }

  StepInput input() const {
    return {.tokens = tokens,
            .positions = positions,
            .sequences = sequences,
            .block_tables = tables,
            .logit_rows = logit_rows,
            .state_blocks = state_blocks};
  }
  // Positions that all rows see.
  int64_t seen() const {
    return std::accumulate(positions.begin(), positions.end(), int64_t{0}) + rows();
  }
  int32_t rows() const { return static_cast<int32_t>(positions.size()); }

  std::vector<TokenId> tokens;
  std::vector<int32_t> positions;
  std::vector<SequenceRows> sequences;
  std::vector<int32_t> tables;
  std::vector<int32_t> logit_rows;
  int32_t state_blocks = 0;

 private:
  void Add(int32_t rows, int32_t context) {
    const auto which = static_cast<int32_t>(sequences.size());
    const int32_t blocks = (context + rows + kBlockTokens - 1) / kBlockTokens;
    SequenceRows& sequence = sequences.emplace_back();
    sequence.first_row = static_cast<int32_t>(tokens.size());
    sequence.row_count = rows;
    sequence.context = context;
    sequence.first_block = static_cast<int32_t>(tables.size());
    for (int32_t j = 0; j < blocks; ++j) tables.push_back(which * blocks + j);
    sequence.state_table = static_cast<int32_t>(tables.size());
    for (int32_t j = 0; j < 2 * state_blocks; ++j) {
      tables.push_back(which * state_blocks + j % state_blocks);
    }
    for (int32_t i = 0; i < rows; ++i) {
      tokens.push_back(0);
      positions.push_back(context + i);
      logit_rows.push_back(static_cast<int32_t>(logit_rows.size()));
    }
  }
};

class LayersBench {
 public:
  LayersBench(CudaDevice& device, std::string filter)
      : device_(device), filter_(std::move(filter)) {
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    fixed_ = Take(StepBuffer::Create(size_t{8} << 20));
    lists_ = Take(StepBuffer::Create(size_t{32} << 20));
    rate_ = CopyRate(stream_);
    fmt::print("{{\"name\": \"copy\", \"gb_per_s\": {:.0f}}}\n", rate_ / 1e3);
  }

  void Latents(const std::string& size, const Step& step) {
    if (!Wanted("latents/" + size)) return;
    const LatentShape shape = {
        .heads = 128, .rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
    const int32_t rows = step.rows();
    KvView kv;
    kv.dtype = DType::kBF16;
    kv.kv_heads = kv.layers = 1;
    kv.head_dim = shape.width();
    kv.block_tokens = kBlockTokens;
    kv.head_stride = kv.layer_stride = kv.block_stride = int64_t{2} * kBlockTokens * shape.width();
    kv.blocks = static_cast<int32_t>(step.tables.size());
    const Numbers cache(static_cast<size_t>(kv.blocks * kv.block_stride));
    kv.base = cache.at();
    const StepInput input = step.input();
    StepLayout layout;
    Upload(input, kv, layout);
    const int32_t width = shape.width();
    const LatentWork work = {shape, 0.07f, 0, false};
    const auto attention = Take(LatentAttention::Create(device_.properties(), false));
    const LatentPlan plan = Take(attention->Plan(work, layout, kv, *fixed_));
    DeviceProperties portable = device_.properties();
    portable.portable = true;
    const auto with_mma = Take(LatentAttention::Create(portable, false));
    const LatentPlan mma_plan = Take(with_mma->Plan(work, layout, kv, *fixed_));
    Check(fixed_->Upload(stream_));
    const auto columns = [&](int64_t of_head) { return shape.heads * of_head; };
    const Numbers memory(static_cast<size_t>(int64_t{2} * rows * columns(1024)));
    const auto tensor = [&](int64_t of_head) {
      return memory.Rows(DType::kBF16, rows, columns(of_head));
    };
    const Numbers outputs(static_cast<size_t>(int64_t{2} * rows * columns(1024)));
    const auto out = [&](int64_t of_head) {
      return outputs.Rows(DType::kBF16, rows, columns(of_head));
    };
    const Numbers weights(size_t{2} * 128 * 512 * 128);
    auto heads = std::make_shared<HeadPointers>();
    for (int i = 0; i < 128; ++i) {
      heads->push_back(reinterpret_cast<const __nv_bfloat16*>(weights.at()) +
                       int64_t{i} * 512 * 128);
    }
    const Numbers angles(static_cast<size_t>(rows) * 32 * sizeof(float2));
    const HeadGemmOp absorb = {
        .x = tensor(shape.query_dim()),
        .x_head = shape.query_dim(),
        .out = out(shape.width()),
        .out_head = shape.width(),
        .n = shape.rank,
        .k = shape.nope_dim,
        .weights = heads,
        .rope_dim = shape.rope_dim,
        .angles = {.at = reinterpret_cast<const float2*>(angles.at()), .pairs = 32}};
    const HeadGemmOp expand = {.x = tensor(shape.rank),
                               .x_head = shape.rank,
                               .out = out(shape.value_dim),
                               .out_head = shape.value_dim,
                               .n = shape.value_dim,
                               .k = shape.rank,
                               .weights = heads};
    const double weight_bytes = 2.0 * 128 * 512 * 128;
    Print("latents/absorb/" + size, weight_bytes, [&] { Check(LaunchHeadGemm(absorb, stream_)); });
    // All rows of a chunk see the same latents.
    const double cached = 2.0 * static_cast<double>(step.tables.size()) * kBlockTokens * width;
    Print("latents/attend/" + size, cached, [&] {
      Check(attention->Launch(plan, kv, 0, tensor(width), out(shape.rank), stream_));
    });
    Print("latents/attend_mma/" + size, cached, [&] {
      Check(with_mma->Launch(mma_plan, kv, 0, tensor(width), out(shape.rank), stream_));
    });
    const double products = 2.0 * static_cast<double>(step.seen()) * columns(width + shape.rank);
    fmt::print("{{\"name\": \"latents/products/{}\", \"tera\": {:.3f}}}\n", size, products * 1e-12);
    Print("latents/expand/" + size, weight_bytes, [&] { Check(LaunchHeadGemm(expand, stream_)); });
  }

  // `rows` decoding sequences, or a chunk of `rows` rows of one prompt.
  void DeltaNet(int32_t rows, bool decodes) {
    if (filter_.starts_with("latents")) return;
    const RecurrentShape shape = {
        .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .kernel = 4};
    KvView kv;
    kv.dtype = DType::kBF16;
    kv.kv_heads = 1;
    kv.layers = kLayers;
    kv.head_dim = 8;
    kv.block_tokens = kBlockTokens;
    kv.state.layer_bytes = shape.state_numbers() * 4;
    kv.state.block_bytes = kv.block_stride = int64_t{1} << 20;
    const auto state_blocks = static_cast<int32_t>(
        (kLayers * kv.state.layer_bytes + kv.block_stride - 1) / kv.block_stride);
    const int32_t count = decodes ? rows : 1;  // of sequences
    const Step step =
        decodes ? Step::Decode(rows, 1000, state_blocks) : Step::Chunk(rows, 1000, state_blocks);
    kv.blocks = static_cast<int32_t>(step.tables.size());
    const Numbers states(static_cast<size_t>(int64_t{count} * state_blocks * kv.block_stride));
    kv.base = states.at();
    const StepInput input = step.input();
    StepLayout layout;
    Upload(input, kv, layout);
    Check(fixed_->Upload(stream_));
    const Numbers vectors(size_t{1} << 20);
    const Numbers inputs(static_cast<size_t>(int64_t{2} * rows * shape.input_columns()));
    const Numbers gates(static_cast<size_t>(int64_t{2} * rows * shape.gate_columns()));
    const int64_t channels = int64_t{shape.key_heads} * shape.channels();
    const Numbers convolved(static_cast<size_t>(int64_t{4} * rows * channels));
    const Numbers outputs(static_cast<size_t>(int64_t{4} * rows * shape.value_numbers()));
    const Numbers results(static_cast<size_t>(int64_t{2} * rows * shape.value_numbers()));
    const auto* const vector = reinterpret_cast<const float*>(vectors.at());
    const Tensor x = inputs.Rows(DType::kBF16, rows, shape.input_columns());
    const DeltaLayer layer = {
        .layout = layout,
        .kv = kv,
        .layer = {.shape = shape,
                  .convolution = vector,
                  .decay = vector,
                  .time_bias = vector,
                  .norm = vector,
                  .norm_epsilon = 1e-6f},
        .x = x,
        .gates = gates.Rows(DType::kBF16, rows, shape.gate_columns()),
        .convolved = convolved.Rows(DType::kF32, rows, channels),
        .outputs = outputs.Rows(DType::kF32, rows, shape.value_numbers()),
        .result = results.Rows(DType::kBF16, rows, shape.value_numbers()),
        .size = fmt::format("{}{}", decodes ? "" : "prompt/", rows),
        .bytes = 2.0 * count * shape.key_heads * static_cast<double>(shape.matrix_numbers()) * 4};
    WalkRows(layer);
    if (decodes) {
      DecodeRows(layer);
    } else {
      ChunkRows(layer);
    }
  }

 private:
  static constexpr int32_t kLayers = 8;  // so that a state is not in a cache

  struct DeltaLayer {
    const StepLayout& layout;
    const KvView& kv;
    RecurrentLayer layer;
    Tensor x, gates, convolved, outputs, result;
    std::string size;
    double bytes = 0;
  };

  // Runs `body` for all layers.
  template <class Body>
  void PrintDelta(const std::string& name, DeltaLayer a, double bytes, const Body& body) const {
    const auto layers = [&] {
      for (a.layer.layer = 0; a.layer.layer < kLayers; ++a.layer.layer) body(a);
    };
    Print("delta_net/" + name + a.size, bytes, layers, kLayers);
  }

  void WalkRows(const DeltaLayer& layer) const {
    const auto convolve = [this](const DeltaLayer& a) {
      Check(LaunchConvolve({a.x, a.layer, a.convolved}, a.layout.states, a.kv, stream_));
    };
    const auto update = [this](const DeltaLayer& a) {
      Check(LaunchUpdateStates(
          {a.convolved, a.x, a.gates, a.layer, a.outputs}, a.layout.states, a.kv, stream_));
    };
    const auto finish = [this](const DeltaLayer& a) {
      Check(LaunchFinishRows(
          {a.outputs, a.convolved, a.x, a.layer, a.result}, a.layout.states, stream_));
    };
    PrintDelta("", layer, layer.bytes, [&](const DeltaLayer& a) {
      convolve(a);
      update(a);
      finish(a);
    });
    PrintDelta("convolve/", layer, 0, convolve);
    PrintDelta("update/", layer, layer.bytes, update);
    PrintDelta("finish/", layer, 0, finish);
  }

  void DecodeRows(const DeltaLayer& layer) const {
    PrintDelta("decode/", layer, layer.bytes, [this](const DeltaLayer& a) {
      Check(LaunchDecodeRows({a.x, a.gates, a.layer, a.result}, a.layout.states, a.kv, stream_));
    });
  }

  void ChunkRows(const DeltaLayer& layer) const {
    const StateChunks& chunks = layer.layout.chunks;
    const int64_t numbers = ChunkMemory::Bytes(layer.layer.shape) / 4;
    const Numbers memory(static_cast<size_t>(chunks.chunks * numbers * 4));
    const Tensor between = memory.Rows(DType::kF32, chunks.chunks, numbers);
    PrintDelta("chunks/", layer, layer.bytes, [&](const DeltaLayer& a) {
      Check(LaunchChunkRows({a.x, a.gates, a.layer, between, a.result, true},
                            a.layout.states,
                            chunks,
                            a.kv,
                            stream_));
    });
  }

  bool Wanted(const std::string& name) const { return name.find(filter_) != std::string::npos; }

  // `layout` keeps a pointer to `input`.
  void Upload(const StepInput& input, const KvView& kv, StepLayout& layout) {
    fixed_->Clear();
    lists_->Clear();
    const auto rows = static_cast<int32_t>(input.tokens.size());
    // A step that only decodes is recorded.
    const bool decodes = input.tokens.size() == input.sequences.size();
    Check(layout.Build(input, kv, decodes ? rows : 0, *fixed_, *lists_));
    BATON_CHECK(Take(lists_->Fits()), "the tables of {} rows do not fit", rows);
    Check(lists_->Upload(stream_));
  }

  void Print(const std::string& name,
             double bytes,
             const std::function<void()>& body,
             int32_t layers = 1) const {
    if (!Wanted(name)) return;
    const double time = TimeGraph(stream_, kRepeats, body) / layers;
    fmt::print(
        "{{\"name\": \"{}\", \"us\": {:.2f}, \"bound_us\": {:.2f}}}\n", name, time, bytes / rate_);
    std::fflush(stdout);
  }

  CudaDevice& device_;
  const std::string filter_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<StepBuffer> fixed_;
  std::unique_ptr<StepBuffer> lists_;
  double rate_ = 1;
};

void Run(const std::string& filter) {
  const auto device = Take(CudaDevice::Open(0));
  Check(device->MakeCurrent());
  LayersBench bench(*device, filter);
  for (const auto& [rows, context] : {std::pair(1, 8192), {16, 8192}, {64, 8192}, {64, 32768}}) {
    bench.Latents(fmt::format("{}x{}", rows, context), Step::Decode(rows, context - 1, 0));
  }
  bench.Latents("2048after6144", Step::Chunk(2048, 6144));
  for (const int32_t rows : {1, 64, 256}) bench.DeltaNet(rows, true);
  bench.DeltaNet(8192, false);
}

}  // namespace
}  // namespace baton::cuda

int main(int argc, char** argv) {
  baton::cuda::Run(argc > 1 ? argv[1] : "");
  return 0;
}

#include "kernels/cpu/cpu_ops.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "kernels/cpu/cpu_matmul.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/sampler.h"
#include "kernels/dequantize.h"
#include "kernels/token_mask.h"

namespace baton::cpu {
namespace {

const PackedMatrix& Packed(const Matrix& matrix) {
  return static_cast<const PackedMatrix&>(matrix);
}
// The keys of 16 tokens in one dimension are one vector.
constexpr int32_t kBlockTokenMultiple = 16;
constexpr int32_t kHeadDimMultiple = 8;

Status CheckHeadDim(int32_t head_dim) {
  if (head_dim > 0 && head_dim % kHeadDimMultiple == 0) return OkStatus();
  return MakeStatus(StatusCode::kUnimplemented,
                    "the head dimension is {}; the CPU backend needs a multiple of {}",
                    head_dim,
                    kHeadDimMultiple);
}

Status CheckKv(const KvView& kv) {
  if (kv.block_tokens <= 0 || kv.block_tokens % kBlockTokenMultiple != 0) {
    return InvalidArgument("KV blocks of {} tokens; the CPU backend needs a multiple of {}",
                           kv.block_tokens,
                           kBlockTokenMultiple);
  }
  BATON_RETURN_IF_ERROR(CheckHeadDim(kv.head_dim));
  if (!kv.k_dim_major && !kv.one_plane()) {
    return InvalidArgument("K is stored [token][dim]; the CPU backend needs [dim][token]");
  }
  if (kv.dtype != DType::kF32 && kv.dtype != DType::kF16 && kv.dtype != DType::kBF16) {
    return InvalidArgument("a KV cache of {}; it must be f32, f16 or bf16", Name(kv.dtype));
  }
  return OkStatus();
}

Status CheckSequence(const StepInput& input,
                     const SequenceRows& rows,
                     const KvView& kv,
                     int32_t next_row) {
  if (rows.first_row != next_row || rows.row_count <= 0 || rows.context < 0) {
    return InvalidArgument("a sequence of rows {} + {} with context {}; it must begin at row {}",
                           rows.first_row,
                           rows.row_count,
                           rows.context,
                           next_row);
  }
  const int64_t tokens = int64_t{rows.context} + rows.row_count;
  const int64_t blocks = (tokens + kv.block_tokens - 1) / kv.block_tokens;
  const int64_t last_table = rows.first_block + int64_t{kv.groups - 1} * rows.table_blocks;
  if (rows.first_block < 0 || (kv.groups > 1 && rows.table_blocks < blocks) ||
      last_table + blocks > static_cast<int64_t>(input.block_tables.size())) {
    return InvalidArgument(
        "a sequence of {} tokens needs {} block table entries in each of {} cache groups, from {} "
        "on and {} apart; there are {}",
        tokens,
        blocks,
        kv.groups,
        rows.first_block,
        rows.table_blocks,
        input.block_tables.size());
  }
  for (int32_t group = 0; group < kv.groups; ++group) {
    for (int64_t i = 0; i < blocks; ++i) {
      const int32_t block = input.block_tables[static_cast<size_t>(rows.TableOf(group) + i)];
      if (block < 0 || block >= kv.blocks) {
        return InvalidArgument("block {} in a block table; the arena has {}", block, kv.blocks);
      }
    }
  }
  return OkStatus();
}

Status CheckStates(const StepInput& input, const SequenceRows& rows, const KvView& kv) {
  if (kv.state.block_bytes == 0) return OkStatus();
  const int64_t end = rows.state_table + int64_t{2} * input.state_blocks;
  if (input.state_blocks <= 0 || rows.state_table < 0 ||
      end > static_cast<int64_t>(input.block_tables.size())) {
    return InvalidArgument(
        "a sequence needs two lists of {} blocks of states from entry {} of the block tables on; "
        "there are {} entries",
        input.state_blocks,
        rows.state_table,
        input.block_tables.size());
  }
  if (rows.in_state && rows.row_count != 1) {
    return InvalidArgument("{} rows that are in their state already; only one may be",
                           rows.row_count);
  }
  for (int64_t i = rows.state_table; i < end; ++i) {
    const int32_t block = input.block_tables[static_cast<size_t>(i)];
    if (block >= 0 && block < kv.blocks) continue;
    return InvalidArgument("block {} of a state; the arena has {}", block, kv.blocks);
  }
  return OkStatus();
}

}  // namespace

float* FloatRow(const Tensor& tensor, int64_t row) {
  return reinterpret_cast<float*>(tensor.data) + row * tensor.stride;
}

CpuOps::CpuOps(CpuDevice& device, const CpuOptions& options)
    : device_(device),
      kernels_(Kernels(options.isa)),
      pool_(options.threads),
      weights_(device),
      matmul_(kernels_, pool_),
      family_ops_(kernels_, pool_),
      exchange_(options.groups, options.exchange),
      attention_scratch_(static_cast<size_t>(options.threads)),
      samplers_(static_cast<size_t>(options.threads), Sampler(kernels_)),
      latent_ops_({.kernels = kernels_,
                   .pool = pool_,
                   .exchange = exchange_,
                   .input = input_,
                   .kv = kv_,
                   .row_sequence = row_sequence_,
                   .longest = longest_,
                   .rope = rope_,
                   .scratch = attention_scratch_}),
      recurrent_ops_({.kernels = kernels_,
                      .pool = pool_,
                      .exchange = exchange_,
                      .input = input_,
                      .kv = kv_,
                      .chains = chains_,
                      .scratch = attention_scratch_}) {}

KvNeeds CpuOps::kv_needs() const {
  return {.k_dim_major = true,
          .block_token_multiple = kBlockTokenMultiple,
          .cache_groups = true,
          .states = true};
}

Status CpuOps::CheckModel(const ModelShape& shape) const {
  if (shape.latent.rank == 0) return CheckHeadDim(shape.heads.head_dim);
  const LatentShape& latent = shape.latent;
  for (const auto& [name, size] : {std::pair<std::string_view, int32_t>{"latent", latent.rank},
                                   {"rotated part of a key", latent.rope_dim},
                                   {"index key", shape.index.dim}}) {
    const bool absent = shape.index.heads == 0 && name == "index key";
    if (absent || (size > 0 && size % kHeadDimMultiple == 0)) continue;
    return MakeStatus(StatusCode::kUnimplemented,
                      "the {} has {} numbers; the CPU backend needs a multiple of {}",
                      name,
                      size,
                      kHeadDimMultiple);
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<Matrix>> CpuOps::LoadMatrix(std::span<const HostMatrix> parts) {
  // Generates the values of parts without data (dummy weights). Their memory comes from the device,
  // so that a shape which does not fit is an error.
  std::vector<std::unique_ptr<Buffer>> drawn;
  std::vector<HostMatrix> whole(parts.begin(), parts.end());
  for (HostMatrix& part : whole) {
    if (part.data != nullptr) continue;
    const auto numbers = static_cast<size_t>(part.rows * part.cols);
    BATON_ASSIGN_OR_RETURN(drawn.emplace_back(),
                           device_.Allocate(numbers * sizeof(uint16_t), Sharing::kPrivate));
    DrawMatrix(part, {reinterpret_cast<uint16_t*>(drawn.back()->data()), numbers});
    part = {DType::kBF16, part.rows, part.cols, drawn.back()->data()};
  }
  return PackedMatrix::Pack(whole, weights_, pool_);
}

StatusOr<std::unique_ptr<Matrix>> CpuOps::LoadGateUp(const HostMatrix& gate, const HostMatrix& up) {
  if (gate.rows != up.rows) {
    return InvalidArgument("gate has {} rows and up {}; they must be equal", gate.rows, up.rows);
  }
  const HostMatrix parts[] = {gate, up};
  return LoadMatrix(parts);
}

StatusOr<std::unique_ptr<Vector>> CpuOps::LoadVector(std::span<const float> values) {
  return std::make_unique<HostVector>(values);
}

Status CpuOps::BeginStep(const StepInput& input, const KvView& kv) {
  BATON_RETURN_IF_ERROR(CheckKv(kv));
  const size_t rows = input.tokens.size();
  if (input.positions.size() != rows) {
    return InvalidArgument("{} positions for {} tokens", input.positions.size(), rows);
  }
  row_sequence_.clear();
  longest_ = 0;
  int32_t next_row = 0;
  for (size_t i = 0; i < input.sequences.size(); ++i) {
    const SequenceRows& sequence = input.sequences[i];
    BATON_RETURN_IF_ERROR(CheckSequence(input, sequence, kv, next_row));
    BATON_RETURN_IF_ERROR(CheckStates(input, sequence, kv));
    next_row += sequence.row_count;
    longest_ = std::max(longest_, int64_t{sequence.context} + sequence.row_count);
    row_sequence_.resize(static_cast<size_t>(next_row), static_cast<int32_t>(i));
  }
  if (row_sequence_.size() != rows) {
    return InvalidArgument("sequences of {} rows for {} tokens", row_sequence_.size(), rows);
  }
  for (const int32_t row : input.logit_rows) {
    if (row < 0 || static_cast<size_t>(row) >= rows) {
      return InvalidArgument("logits of row {} are requested; there are {} rows", row, rows);
    }
  }
  input_ = input;
  kv_ = kv;
  if (kv.state.block_bytes > 0) chains_.Build(input_, kv.blocks);
  rope_.Clear();
  exchange_.Begin();
  pool_.Wake();
  return OkStatus();
}

Status CpuOps::IssueStep() {
  input_ = {};
  return exchange_.status();
}

void CpuOps::NotifyWhenDone(std::function<void()> done) {
  if (!exchange_.failed()) done();
}

void CpuOps::Embed(const Matrix& table, int32_t first_token, const Tensor& residual) {
  const PackedMatrix& rows = Packed(table);
  BATON_CHECK(residual.cols == rows.cols(), "embedding of {} into {}", rows.cols(), residual.cols);
  ForRows(pool_, residual.rows, residual.cols * 4, [&](int64_t row) {
    const TokenId token = input_.tokens[static_cast<size_t>(row)];
    const int64_t index = int64_t{token} - first_token;
    const bool held = index >= 0 && index < rows.rows();
    BATON_CHECK(held || !exchange_.alone(), "token {} of {}", token, rows.rows());
    if (held) {
      rows.Row(index, FloatRow(residual, row));
    } else {
      std::fill_n(FloatRow(residual, row), residual.cols, -0.0f);
    }
  });
}

void CpuOps::RmsNorm(const Tensor& x, const Vector& weight, float epsilon, const Tensor& out) {
  BATON_CHECK(x.cols == weight.size() && x.cols == out.cols, "norm of {}", x.cols);
  ForRows(pool_, x.rows, x.cols / 4, [&](int64_t row) {
    RmsNormArgs args;
    args.x = FloatRow(x, row);
    args.weight = HostData(weight);
    args.epsilon = epsilon;
    args.size = x.cols;
    args.out = FloatRow(out, row);
    kernels_.rms_norm(args);
  });
}

void CpuOps::Add(const Tensor& residual, const Tensor& delta) {
  BATON_CHECK(residual.cols == delta.cols, "sum of {} and {}", residual.cols, delta.cols);
  ForRows(pool_, residual.rows, residual.cols / 4, [&](int64_t row) {
    float* const to = FloatRow(residual, row);
    const float* const from = FloatRow(delta, row);
    for (int64_t i = 0; i < residual.cols; ++i) to[i] += from[i];
  });
}

void CpuOps::AddRmsNorm(const Tensor& residual,
                        const Tensor& delta,
                        const Vector& weight,
                        float epsilon,
                        const Tensor& out) {
  BATON_CHECK(
      residual.cols == weight.size() && delta.cols == weight.size(), "norm of {}", residual.cols);
  ForRows(pool_, residual.rows, residual.cols / 4, [&](int64_t row) {
    RmsNormArgs args;
    args.x = FloatRow(residual, row);
    args.delta = FloatRow(delta, row);
    args.residual = FloatRow(residual, row);
    args.weight = HostData(weight);
    args.epsilon = epsilon;
    args.size = residual.cols;
    args.out = FloatRow(out, row);
    kernels_.rms_norm(args);
  });
}

void CpuOps::MatMul(const Tensor& x, const Matrix& weight, const Vector* bias, const Tensor& out) {
  if (exchange_.failed()) return;
  matmul_.Multiply(x, Packed(weight), bias == nullptr ? nullptr : HostData(*bias), out);
}

void CpuOps::MatMulSiluMul(const Tensor& x,
                           const Matrix& gate_up,
                           const Vector* bias,
                           const Tensor& out) {
  if (exchange_.failed()) return;
  const float* const added = bias == nullptr ? nullptr : HostData(*bias);
  matmul_.GatedMultiply(x, Packed(gate_up), added, {}, out);
}

void CpuOps::GatherLogitRows(const Tensor& x, const Tensor& out) {
  for (size_t i = 0; i < input_.logit_rows.size(); ++i) {
    std::memcpy(FloatRow(out, static_cast<int64_t>(i)),
                FloatRow(x, input_.logit_rows[i]),
                static_cast<size_t>(x.cols) * sizeof(float));
  }
}

void CpuOps::Sample(const Tensor& logits,
                    std::span<const SamplingRow> rows,
                    std::span<SampledToken> out) {
  BATON_CHECK(static_cast<int64_t>(rows.size()) == logits.rows && out.size() == rows.size(),
              "{} sampling rows for {} rows of logits",
              rows.size(),
              logits.rows);
  if (exchange_.failed()) return;
  const auto cols = static_cast<size_t>(logits.cols);
  const Time limit = std::chrono::steady_clock::now() + kMaskWait;
  pool_.Run(logits.rows, [&](int64_t row, int thread) {
    const auto i = static_cast<size_t>(row);
    const TokenMask* mask = rows[i].mask;
    if (mask != nullptr && !mask->WaitUntil(rows[i].waits_for_mask ? kNever : limit)) {
      out[i] = {.token = kLateToken, .logprob = 0, .top = {}};
      return;
    }
    Sampler& sampler = samplers_[static_cast<size_t>(thread)];
    sampler.Choose({FloatRow(logits, row), cols}, rows[i], out[i]);
  });
}

void CpuOps::CopyRows(const Tensor& x, std::span<const std::span<float>> rows) {
  BATON_CHECK(std::cmp_equal(rows.size(), x.rows), "{} copies of {} rows", rows.size(), x.rows);
  if (exchange_.failed()) return;
  for (size_t i = 0; i < rows.size(); ++i) {
    BATON_CHECK(rows[i].empty() || std::cmp_equal(rows[i].size(), x.cols),
                "a copy has {} numbers of a row of {}",
                rows[i].size(),
                x.cols);
    std::copy_n(FloatRow(x, static_cast<int64_t>(i)), rows[i].size(), rows[i].begin());
  }
}

Status CpuOps::CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) {
    if (copy.from < 0 || copy.from >= kv.blocks || copy.to < 0 || copy.to >= kv.blocks) {
      return InvalidArgument(
          "copy of block {} to block {}; the arena has {}", copy.from, copy.to, kv.blocks);
    }
    if (copy.from == copy.to) continue;
    std::memcpy(kv.base + copy.to * kv.block_stride,
                kv.base + copy.from * kv.block_stride,
                static_cast<size_t>(kv.block_stride));
  }
  return OkStatus();
}

}  // namespace baton::cpu

#include "tests/unit/model/step_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/model/dense_kv.h"

namespace baton {
namespace {

std::vector<Logits> ReadHost(const Tensor& logits) {
  std::vector<Logits> result;
  for (int64_t row = 0; row < logits.rows; ++row) {
    const auto* first = reinterpret_cast<const float*>(logits.data) + row * logits.stride;
    result.emplace_back(first, first + logits.cols);
  }
  return result;
}

}  // namespace

StatusOr<std::unique_ptr<StepRunner>> StepRunner::Create(const ModelSpec& spec,
                                                         const WeightSource& weights,
                                                         const RunnerOptions& options,
                                                         const RunnerDevice& device) {
  std::unique_ptr<StepRunner> runner(new StepRunner());
  runner->device_ = device;
  if (device.ops == nullptr) {
    runner->cpu_ = std::make_unique<CpuDevice>();
    CpuOptions cpu;
    cpu.threads = options.threads;
    cpu.isa = options.isa;
    cpu.groups = options.groups;
    cpu.exchange = options.exchange;
    BATON_ASSIGN_OR_RETURN(runner->cpu_ops_, MakeCpuOps(*runner->cpu_, cpu));
    runner->device_ = {runner->cpu_ops_.get(), ReadHost};
  }
  Ops& ops = *runner->device_.ops;
  BATON_ASSIGN_OR_RETURN(runner->decoder_, Decoder::Load(spec, weights, ops, options.limits));
  KvNeeds needs = ops.kv_needs();
  needs.cache_groups = needs.cache_groups && options.cache_groups;
  DenseKv kv = DenseKvOf(spec, needs);
  kv.dtype = options.kv_dtype;
  const KvLayout layout = DenseLayout(kv);
  runner->layout_ = layout;
  runner->places_ = PlacesOf(layout, runner->decoder_->plan().kv_shard);
  runner->blocks_ = options.kv_blocks;
  runner->group_of_.assign(static_cast<size_t>(options.kv_blocks), 0);
  const KvShard shards[] = {WholeModel(layout), runner->decoder_->plan().kv_shard};
  runner->state_blocks_ = StateBlocks(layout, shards);
  const size_t bytes =
      ShardBlockBytes(layout, runner->decoder_->plan().kv_shard) * options.kv_blocks;
  BATON_ASSIGN_OR_RETURN(runner->arena_, ops.device().Allocate(bytes, Sharing::kPrivate));
  return runner;
}

// Takes blocks alternately from both ends, so that consecutive blocks of a sequence are not
// adjacent in memory.
int32_t StepRunner::TakeBlock(int32_t group) {
  BATON_CHECK(used_blocks_ < blocks_, "the test needs more than {} blocks", blocks_);
  const int32_t n = used_blocks_++;
  const int32_t block = n % 2 == 0 ? n / 2 : blocks_ - 1 - n / 2;
  group_of_[static_cast<size_t>(block)] = group;
  return block;
}

StepRunner::Sequence& StepRunner::Grow(int32_t sequence, size_t tokens) {
  if (sequences_.size() <= static_cast<size_t>(sequence)) sequences_.resize(sequence + 1);
  Sequence& state = sequences_[sequence];
  const size_t needed = (state.context + tokens + layout_.block_tokens - 1) / layout_.block_tokens;
  state.blocks.resize(static_cast<size_t>(layout_.block_groups()));
  while (state.blocks.back().size() < needed) {
    for (int32_t group = 0; group < layout_.block_groups(); ++group) {
      state.blocks[static_cast<size_t>(group)].push_back(TakeBlock(group));
    }
  }
  while (std::cmp_less(state.state.size(), state_blocks_)) {
    state.state.push_back(TakeBlock(layout_.block_groups()));
    state.next_state.push_back(TakeBlock(layout_.block_groups()));
  }
  return state;
}

std::vector<std::byte> StepRunner::StateBytesOf(int32_t sequence) const {
  const KvView view = kv();
  std::vector<std::byte> bytes;
  for (const int32_t block : sequences_[static_cast<size_t>(sequence)].state) {
    const std::byte* const first = view.base + block * view.block_stride;
    bytes.insert(bytes.end(), first, first + view.state.block_bytes);
  }
  bytes.resize(ShardStateBytes(layout_, decoder_->plan().kv_shard));
  return bytes;
}

std::vector<float> StepRunner::StateOf(int32_t sequence,
                                       int32_t layer,
                                       int32_t plane,
                                       int32_t head) const {
  const KvView view = kv();
  const int32_t heads = decoder_->plan().kv_shard.head_count;
  int64_t first = view.PlaceOf(layer).index * view.state.layer_bytes;
  const std::vector<KvPlane>& planes = layout_.groups.back().planes;
  for (int32_t i = 0; i < plane; ++i) {
    first += static_cast<int64_t>(planes[static_cast<size_t>(i)].head_bytes(1)) * heads;
  }
  const size_t head_bytes = planes[static_cast<size_t>(plane)].head_bytes(1);
  first += static_cast<int64_t>(head_bytes) * head;
  const std::vector<std::byte> bytes = StateBytesOf(sequence);
  std::vector<float> numbers(head_bytes / sizeof(float));
  std::memcpy(numbers.data(), bytes.data() + first, head_bytes);
  return numbers;
}

std::vector<Logits> StepRunner::Step(std::span<const Chunk> chunks, const LayerHook& hook) {
  auto logits = TryStep(chunks, hook);
  BATON_CHECK(logits.ok(), "{}", Message(logits.status()));
  return *std::move(logits);
}

StepRunner::Batch StepRunner::MakeBatch(std::span<const Chunk> chunks) {
  Batch batch;
  auto& [tokens, positions, rows, tables, logit_rows, state_blocks] = batch;
  state_blocks = state_blocks_;
  for (const Chunk& chunk : chunks) {
    Sequence& state = Grow(chunk.sequence, chunk.tokens.size());
    if (chunk.in_state) --state.context;
    SequenceRows part;
    part.first_row = static_cast<int32_t>(tokens.size());
    part.row_count = static_cast<int32_t>(chunk.tokens.size());
    part.context = state.context;
    part.first_block = static_cast<int32_t>(tables.size());
    part.table_blocks = static_cast<int32_t>(state.blocks.back().size());
    rows.push_back(part);
    for (const std::vector<int32_t>& table : state.blocks) {
      tables.insert(tables.end(), table.begin(), table.end());
    }
    AppendStates(chunk, state, batch);
    for (size_t i = 0; i < chunk.tokens.size(); ++i) {
      const bool last = i + 1 == chunk.tokens.size();
      if (chunk.want == WantLogits::kAll || (last && chunk.want == WantLogits::kLast)) {
        logit_rows.push_back(static_cast<int32_t>(tokens.size()));
      }
      tokens.push_back(chunk.tokens[i]);
      positions.push_back(state.context + static_cast<int32_t>(i));
    }
    state.context += part.row_count;
  }
  return batch;
}

void StepRunner::AppendStates(const Chunk& chunk, Sequence& sequence, Batch& batch) {
  SequenceRows& rows = batch.rows.back();
  rows.in_state = chunk.in_state;
  rows.state_table = static_cast<int32_t>(batch.tables.size());
  batch.tables.insert(batch.tables.end(), sequence.state.begin(), sequence.state.end());
  if (!chunk.in_state) std::swap(sequence.state, sequence.next_state);
  batch.tables.insert(batch.tables.end(), sequence.state.begin(), sequence.state.end());
}

StatusOr<std::vector<Logits>> StepRunner::TryStep(std::span<const Chunk> chunks,
                                                  const LayerHook& hook) {
  const Batch batch = MakeBatch(chunks);
  const StepInput input = batch.input();
  BATON_RETURN_IF_ERROR(device_.ops->BeginStep(input, kv()));
  const Tensor logits = decoder_->Forward(input, hook).logits;
  BATON_RETURN_IF_ERROR(device_.ops->EndStep());
  return device_.read(logits);
}

Status StepRunner::Issue(std::span<const Chunk> chunks) {
  const Batch batch = MakeBatch(chunks);
  BATON_RETURN_IF_ERROR(device_.ops->BeginStep(batch.input(), kv()));
  decoder_->ForwardStage(batch.input());
  issued_.push_back(batch.logit_rows.size());
  return device_.ops->IssueStep();
}

StatusOr<std::vector<Logits>> StepRunner::Take() {
  const Tensor logits = decoder_->TakeResults(issued_.front(), RowResults::kLogits).logits;
  issued_.pop_front();
  BATON_RETURN_IF_ERROR(device_.ops->AwaitStep());
  return device_.read(logits);
}

std::vector<Logits> StepRunner::RunAll(int32_t sequence,
                                       std::span<const TokenId> tokens,
                                       size_t chunk_rows) {
  std::vector<Logits> all;
  while (!tokens.empty()) {
    const size_t count = std::min(chunk_rows, tokens.size());
    for (Logits& row : Step({sequence, tokens.first(count), WantLogits::kAll})) {
      all.push_back(std::move(row));
    }
    tokens = tokens.subspan(count);
  }
  return all;
}

void StepRunner::Reset() {
  sequences_.clear();
  used_blocks_ = 0;
}

TokenId ArgMax(const Logits& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double NegativeLogLikelihood(std::span<const float> logits, TokenId token) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - highest);
  return highest + std::log(sum) - logits[token];
}

}  // namespace baton

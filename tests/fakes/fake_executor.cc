#include "tests/fakes/fake_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/engine/sequence.h"
#include "kernels/token_mask.h"
#include "tests/fakes/fake_kv.h"
#include "tests/fakes/host_buffer.h"

namespace baton {
namespace {

template <class T>
uint64_t HashOf(std::span<const T> values) {
  uint64_t h = values.size();
  for (const T& value : values) h = Mix(h, static_cast<uint64_t>(value));
  return h;
}

SampledToken Choose(uint64_t visible, const SamplingRow& row, int32_t vocabulary) {
  if (row.forced != kNoToken) {
    const auto hash = Mix(visible, static_cast<uint64_t>(row.forced));
    return {.token = row.forced, .logprob = -static_cast<float>(hash % 97), .top = {}};
  }
  uint64_t h = Mix(visible, row.position);
  h = Mix(h, HashOf(row.prompt));
  h = Mix(h, HashOf(row.output));
  if (row.params->temperature > 0) h = Mix(h, row.params->seed);
  SampledToken chosen;
  chosen.token = static_cast<TokenId>(h % vocabulary);
  const auto allowed = [&](TokenId token) {
    if (std::ranges::count(row.banned, token) > 0) return false;
    return row.mask == nullptr || (row.mask->allowed()[token / 32] >> token % 32 & 1) != 0;
  };
  const TokenId first = chosen.token;
  while (!allowed(chosen.token)) {
    chosen.token = (chosen.token + 1) % vocabulary;
    if (chosen.token == first) return {.token = kNoToken, .logprob = 0, .top = {}};
  }
  chosen.logprob = -static_cast<float>(h % 97);
  return chosen;
}

// A slot of a position in a layer: K holds the position's value, V its complement.
std::byte* Slot(const KvView& kv, int32_t block, int32_t layer, int64_t position, int part) {
  std::byte* const first = part == 0 ? kv.Key(block, layer, 0) : kv.Value(block, layer, 0);
  return first + (position % kv.block_tokens) * sizeof(uint64_t);
}

StateLayers StatesOf(const FakeExecutor::Shape& shape) {
  if (shape.state_layers.empty()) return {};
  return {.layers = shape.state_layers,
          .planes = {{.name = "state", .heads = 1, .dim = shape.state_dim}}};
}

OwnedArena ArenaIn(Device& device, const KvOptions& kv, const ModelTraits& traits) {
  KvOptions exact = kv;
  exact.dtype = DType::kF32;
  auto arena = OpenArena({.options = exact}, traits, device);
  BATON_CHECK(arena.ok(), "{}", Message(arena.status()));
  return *std::move(arena);
}

}  // namespace

StatusOr<std::unique_ptr<Buffer>> FakeDevice::Allocate(size_t bytes, Sharing) {
  return std::make_unique<HostBuffer>(bytes);
}

Status FakeDevice::CopyIn(const Buffer& to, size_t offset, std::span<const std::byte> from) {
  std::memcpy(to.data() + offset, from.data(), from.size());
  return OkStatus();
}

Status FakeDevice::CopyOut(const Buffer& from, size_t offset, std::span<std::byte> to) {
  std::memcpy(to.data(), from.data() + offset, to.size());
  return OkStatus();
}

FakeExecutor::FakeExecutor(const KvOptions& kv, const Shape& shape)
    : FakeExecutor(kv, shape, std::make_unique<FakeDevice>()) {}

FakeExecutor::FakeExecutor(const KvOptions& kv, const Shape& shape, std::unique_ptr<Device> device)
    : traits_{.context_length = shape.context_length,
              .hidden = shape.hidden,
              .vocabulary = shape.vocabulary,
              .max_rows = shape.max_rows,
              .max_logit_rows = shape.max_logit_rows,
              .kv = {.layers = static_cast<int32_t>(shape.windows.size()),
                     .kv_heads = 1,
                     .head_dim = 2,
                     .windows = shape.windows,
                     .state = StatesOf(shape)},
              .fingerprint = {0xFA4E, 0x3D31}},
      seen_(shape.windows),
      device_(std::move(device)),
      arena_(ArenaIn(*device_, kv, traits_)),
      queues_steps_(shape.queues_steps),
      stages_(shape.stages),
      reports_late_(shape.reports_late) {
  for (const int32_t layer : shape.state_layers) seen_[layer] = 1;
}

FakeExecutor::~FakeExecutor() = default;

// Holds copies of the caller's spans, because the spans are valid only during Issue.
struct FakeExecutor::Work {
  struct Row {
    SamplingParams params;
    uint64_t position = 0;
    std::vector<TokenId> prompt, output, banned;
    const TokenMask* mask = nullptr;
    bool waits_for_mask = false;
    TokenId forced = kNoToken;
    std::span<float> state = {};
    bool late = false;  // its mask is
  };

  std::vector<BlockCopy> copies;
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions, block_tables, logit_rows;
  int32_t state_blocks = 0;
  std::vector<SequenceRows> sequences;
  std::vector<Row> sampling;
  std::span<SampledToken> out;
  LayerWatch watch;
  bool is_step = false;
  bool is_behind_failure = false;  // it may read KV that no row has written
};

Status FakeExecutor::Issue(const StepInput& input,
                           std::span<const SamplingRow> sampling,
                           std::span<SampledToken> out,
                           const LayerWatch& watch) {
  if (lost_) return MakeStatus(StatusCode::kUnavailable, "the fake device is lost");
  auto work = std::make_unique<Work>();
  work->tokens.assign(input.tokens.begin(), input.tokens.end());
  work->positions.assign(input.positions.begin(), input.positions.end());
  work->block_tables.assign(input.block_tables.begin(), input.block_tables.end());
  work->logit_rows.assign(input.logit_rows.begin(), input.logit_rows.end());
  work->sequences.assign(input.sequences.begin(), input.sequences.end());
  work->state_blocks = input.state_blocks;
  SetSampling(sampling, *work);
  work->out = out;
  work->watch = watch;
  work->is_step = true;
  const auto before = static_cast<size_t>(
      std::ranges::count_if(queue_, [](const auto& queued) { return queued->is_step; }));
  steps_behind_ += before > 0;
  ++issued_as_[before + 1];
  if (stages_ > 1) CheckDisjoint(*work);
  if (stages_ > 1 && !reports_late_) {
    // The first stage computes its layers at once.
    for (const int32_t layers : watch.marks) watch.reached(layers);
    work->watch = {};
  }
  queue_.push_back(std::move(work));
  return late() ? OkStatus() : RunNext();
}

void FakeExecutor::SetSampling(std::span<const SamplingRow> sampling, Work& work) {
  has_late_rows_ = false;
  for (const SamplingRow& row : sampling) {
    const bool may_be_late = row.mask != nullptr && !row.waits_for_mask;
    const bool late = may_be_late && (late_masks_ > 0 || masks_in_time_ <= 0);
    late_masks_ -= late && late_masks_ > 0 ? 1 : 0;
    masks_in_time_ -= may_be_late ? 1 : 0;
    has_late_rows_ |= late;
    work.sampling.push_back({*row.params,
                             row.position,
                             {row.prompt.begin(), row.prompt.end()},
                             {row.output.begin(), row.output.end()},
                             {row.banned.begin(), row.banned.end()},
                             row.mask,
                             row.waits_for_mask,
                             row.forced,
                             row.state,
                             late});
  }
  masks_in_time_ = std::numeric_limits<int>::max();
}

Status FakeExecutor::IssueSampling(std::span<const SamplingRow> sampling,
                                   std::span<SampledToken> /*out*/) {
  const auto steps = std::ranges::count_if(queue_, [](auto& queued) { return queued->is_step; });
  BATON_CHECK(steps == 1, "sampling is issued with {} steps in the queue", steps);
  Work& work = *queue_.back();
  BATON_CHECK(work.sampling.empty(), "the sampling of a step is issued twice");
  BATON_CHECK(sampling.size() == work.logit_rows.size(), "{} rows", sampling.size());
  for (const SamplingRow& row : sampling) {
    const bool known = std::ranges::all_of(row.output, [](TokenId token) { return token >= 0; });
    faults_ += row.mask != nullptr && !known;
  }
  SetSampling(sampling, work);
  return OkStatus();
}

Status FakeExecutor::Await() {
  return late() ? RunNext() : OkStatus();
}

// Counts a fault when too many steps are under way, when a step uses tokens of one under way, or
// when both write the same block, except for a step that continues a prompt.
void FakeExecutor::CheckDisjoint(const Work& work) {
  faults_ += std::ranges::any_of(work.tokens, [](TokenId token) { return token < 0; });
  const auto written = [&](const Work& of, const SequenceRows& rows, int32_t position) {
    return of.block_tables[rows.first_block + position / arena_.view.block_tokens];
  };
  int32_t under_way = 1;
  for (const auto& earlier : queue_) {
    under_way += earlier->is_step;
    for (const SequenceRows& a : earlier->sequences) {
      const int32_t end = a.context + a.row_count;
      bool chooses = false;
      for (size_t i = 0; i < earlier->logit_rows.size(); ++i) {
        const bool last = earlier->logit_rows[i] == a.first_row + a.row_count - 1;
        chooses |= last && earlier->sampling[i].forced == kNoToken;
      }
      for (const SequenceRows& b : work.sequences) {
        const int32_t block = written(work, b, b.context);
        bool same = false;
        for (int32_t position = a.context; position < end; ++position) {
          same |= written(*earlier, a, position) == block;
        }
        faults_ += same && (chooses || b.context < end);
      }
    }
  }
  faults_ += under_way > stages_;
}

// Runs the queue up to and including its next step.
Status FakeExecutor::RunNext() {
  for (bool step = false; !step;) {
    BATON_CHECK(!queue_.empty(), "Await was called for a step that was not issued");
    const std::unique_ptr<Work> work = std::move(queue_.front());
    queue_.pop_front();
    step = work->is_step;
    if (step) return Run(*work);
    Copy(*work);
  }
  return OkStatus();
}

Status FakeExecutor::Run(Work& work) {
  for (int64_t allowed = allowed_runs_; runs_ >= allowed; allowed = allowed_runs_) {
    allowed_runs_.wait(allowed);
  }
  ++runs_;
  if (lost_) return MakeStatus(StatusCode::kUnavailable, "the fake device is lost");
  const bool fails = failing_runs_ > 0;
  if (fails) --failing_runs_;
  if (fails && !fails_late_) {
    // The steps that were issued behind this one still run.
    chosen_.assign(work.sampling.size(), 0);
    for (const auto& queued : queue_) queued->is_behind_failure = true;
    return MakeStatus(StatusCode::kInternal, "the fake device failed before the step");
  }
  rows_run_ += static_cast<int64_t>(work.tokens.size());
  max_step_rows_ = std::max(max_step_rows_, static_cast<int32_t>(work.tokens.size()));
  Resolve(work);
  std::vector<TokenId> chosen;
  for (const SequenceRows& rows : work.sequences) {
    std::vector<std::vector<uint64_t>> values;  // by layer, from the first position on that is seen
    for (int32_t layer = 0; layer < traits_.kv.layers; ++layer) {
      values.push_back(has_state(layer)
                           ? RunState(work, rows, layer)
                           : RunLayer(work, rows, layer, FirstSeen(layer, rows.context)));
    }
    for (; chosen.size() < work.sampling.size();) {
      const int32_t row = work.logit_rows[chosen.size()] - rows.first_row;
      if (row >= rows.row_count) break;
      const Work::Row& sampling = work.sampling[chosen.size()];
      uint64_t seen = 0;
      for (int32_t layer = 0; layer < traits_.kv.layers; ++layer) {
        const int32_t count = rows.context + row + 1 - FirstSeen(layer, rows.context);
        const int32_t position = rows.context + row;
        seen = AddTo(seen, std::span(values[layer]).first(count), position, seen_[layer]);
      }
      // The hidden state is the hash, 16 bits in each number.
      for (size_t i = 0; i < sampling.state.size(); ++i) {
        sampling.state[i] = static_cast<float>((seen >> (16 * i)) & 0xffff);
      }
      if (sampling.late) {
        work.out[chosen.size()] = {.token = kLateToken, .logprob = 0, .top = {}};
        chosen.push_back(kLateToken);
        continue;
      }
      if (sampling.mask != nullptr) sampling.mask->WaitUntil(kNever);
      work.out[chosen.size()] = Choose(seen,
                                       {.params = &sampling.params,
                                        .position = sampling.position,
                                        .prompt = sampling.prompt,
                                        .output = sampling.output,
                                        .banned = sampling.banned,
                                        .mask = sampling.mask,
                                        .waits_for_mask = sampling.waits_for_mask,
                                        .forced = sampling.forced},
                                       traits_.vocabulary);
      const bool poisoned = poison_ && sampling.forced == kNoToken &&
                            sampling.prompt.front() == poison_->token &&
                            sampling.output.size() >= poison_->output &&
                            poison_->seed.value_or(sampling.params.seed) == sampling.params.seed;
      if (poisoned) work.out[chosen.size()] = {.token = kNoToken, .logprob = 0, .top = {}};
      chosen.push_back(work.out[chosen.size()].token);
    }
  }
  chosen_ = std::move(chosen);
  for (const int32_t layers : work.watch.marks) work.watch.reached(layers);
  if (fails) return MakeStatus(StatusCode::kInternal, "the fake device failed after the step");
  return OkStatus();
}

int32_t FakeExecutor::FirstSeen(int32_t layer, int32_t position) const {
  return static_cast<int32_t>(seen_[layer].FirstRead(position));
}

std::vector<uint64_t> FakeExecutor::RunLayer(const Work& work,
                                             const SequenceRows& rows,
                                             int32_t layer,
                                             int32_t begin) {
  const KvView& kv = arena_.view;
  const auto table = std::span(work.block_tables).subspan(rows.TableOf(kv.PlaceOf(layer).group));
  std::vector<uint64_t> values;
  uint64_t previous = 0;
  for (int32_t position = begin; position < rows.context + rows.row_count; ++position) {
    const int32_t block = table[position / kv.block_tokens];
    std::byte* key = Slot(kv, block, layer, position, 0);
    std::byte* value = Slot(kv, block, layer, position, 1);
    if (BeginsChunk(seen_[layer], position)) previous = 0;
    if (position >= rows.context) {
      const int32_t row = rows.first_row + position - rows.context;
      const uint64_t made = KvOf(previous, work.tokens[row], work.positions[row], layer);
      const uint64_t complement = ~made;
      std::memcpy(key, &made, sizeof(made));
      std::memcpy(value, &complement, sizeof(complement));
    }
    uint64_t complement = 0;
    std::memcpy(&previous, key, sizeof(previous));
    std::memcpy(&complement, value, sizeof(complement));
    faults_ += previous != ~complement && !work.is_behind_failure;
    values.push_back(previous);
  }
  return values;
}

std::vector<uint64_t> FakeExecutor::RunState(const Work& work,
                                             const SequenceRows& rows,
                                             int32_t layer) {
  const KvView& kv = arena_.view;
  const auto blocks = static_cast<size_t>(work.state_blocks);
  const auto tables = std::span(work.block_tables).subspan(rows.state_table);
  FakeState read(kv, layer, tables.first(blocks));
  FakeState written(kv, layer, tables.subspan(blocks, blocks));
  uint64_t value = 0;
  if (rows.context > 0) {
    const std::optional<uint64_t> found = read.Read(rows.context + (rows.in_state ? 1 : 0));
    faults_ += !found.has_value() && !work.is_behind_failure;
    value = found.value_or(0);
  }
  if (rows.in_state) return {value};
  std::vector<uint64_t> values;
  for (int32_t row = rows.first_row; row < rows.first_row + rows.row_count; ++row) {
    value = KvOf(value, work.tokens[row], work.positions[row], layer);
    values.push_back(value);
  }
  written.Write(rows.context + rows.row_count, value);
  return values;
}

bool FakeExecutor::has_state(int32_t layer) const {
  return std::ranges::binary_search(traits_.kv.state.layers, layer);
}

// Replaces references to the tokens that the previous step sampled by these tokens. A real device
// has them as row inputs but not for sampling. Sampling parameters that depend on the output must
// therefore not be used while a token of the output is unknown.
void FakeExecutor::Resolve(Work& work) {
  const auto resolve = [&](TokenId& token) {
    if (token >= 0) return;
    const auto index = static_cast<size_t>(-1 - token);
    BATON_CHECK(index < chosen_.size(), "token {} of {}", index, chosen_.size());
    token = chosen_[index];
  };
  std::ranges::for_each(work.tokens, resolve);
  for (Work::Row& row : work.sampling) {
    const bool known = std::ranges::all_of(row.output, [](TokenId token) { return token >= 0; });
    faults_ += !known && row.params.depends_on_output();
    std::ranges::for_each(row.output, resolve);
  }
}

Status FakeExecutor::CopyBlocks(std::span<const BlockCopy> copies) {
  auto work = std::make_unique<Work>();
  work->copies.assign(copies.begin(), copies.end());
  if (!late()) {
    Copy(*work);
  } else {
    queue_.push_back(std::move(work));
  }
  return OkStatus();
}

void FakeExecutor::Copy(const Work& work) {
  const KvView& kv = arena_.view;
  for (const BlockCopy& copy : work.copies) {
    std::memcpy(kv.base + copy.to * kv.block_stride,
                kv.base + copy.from * kv.block_stride,
                kv.block_stride);
    ++copies_;
  }
}

std::vector<TokenId> FakeExecutor::Expected(const Request& request,
                                            int32_t sample,
                                            const Grammar* grammar) const {
  TokenMask mask(traits_.vocabulary);
  std::unique_ptr<GrammarMatcher> matcher;
  if (grammar != nullptr) matcher = grammar->NewMatcher(request.stop_tokens);
  std::vector<TokenId> tokens = request.tokens.ToVector();
  SamplingParams params = request.sampling;
  params.seed = SampleSeed(request.sampling.seed, request.first_sample + sample);
  const auto longest = std::min<size_t>(
      static_cast<size_t>(request.prompt_length) + static_cast<size_t>(request.max_tokens),
      static_cast<size_t>(traits_.context_length));
  KvOfTokens kv(seen_);
  while (tokens.size() < longest) {
    while (kv.size() < tokens.size()) kv.Add(tokens[kv.size()]);
    const std::span<const TokenId> all(tokens);
    const auto output = all.subspan(request.prompt_length);
    const bool may_stop = std::cmp_greater_equal(output.size(), request.min_tokens);
    const SamplingRow row = {.params = &params,
                             .position = tokens.size(),
                             .prompt = all.first(request.prompt_length),
                             .output = output,
                             .banned = may_stop ? std::span<const TokenId>() : request.stop_tokens,
                             .mask = matcher == nullptr ? nullptr : &mask,
                             .waits_for_mask = true};
    if (matcher != nullptr) {
      matcher = grammar->NewMatcher(request.stop_tokens);
      for (const TokenId token : output) BATON_CHECK(matcher->Accept(token), "a wrong output");
      matcher->FillMask(mask.words());
    }
    tokens.push_back(Choose(kv.Digest(), row, traits_.vocabulary).token);
    if (may_stop && std::ranges::count(request.stop_tokens, tokens.back()) > 0) break;
  }
  return {tokens.begin() + static_cast<int64_t>(request.tokens.size()), tokens.end()};
}

std::vector<SampledToken> FakeExecutor::ExpectedPrompt(const Request& request) const {
  std::vector<SampledToken> expected;
  KvOfTokens kv(seen_);
  const SamplingParams params;
  const std::vector<TokenId> tokens = request.tokens.ToVector();
  for (int32_t at = 0; at + 1 < request.prompt_length; ++at) {
    kv.Add(tokens[at]);
    expected.push_back(
        Choose(kv.Digest(), {.params = &params, .forced = tokens[at + 1]}, traits_.vocabulary));
  }
  return expected;
}

}  // namespace baton

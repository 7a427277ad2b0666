// What the distance between checkpoints of states costs and saves, without a model: the scheduler
// and its prefix cache serve conversations of many turns, in arenas of the sizes of hybrid models.
// Prints one JSON object for each model, arena and distance. README.md says what the fields mean.
#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/engine/scheduler.h"
#include "common/kvcache/layout.h"

namespace baton {
namespace {

constexpr int32_t kConversations = 48;
constexpr int32_t kTurns = 10;
constexpr int32_t kAtOnce = 8;         // conversations that run together
constexpr int32_t kSystemPrompts = 4;  // each of a quarter of the conversations
constexpr int32_t kSystemTokens[kSystemPrompts] = {1000, 2500, 5000, 8000};
constexpr int32_t kEditsIn100 = 15;  // turns that change an earlier message of their user
constexpr int32_t kArenas[] = {16, 32, 64, 256};  // GiB; nothing is evicted from the last one
constexpr int32_t kMaxBlocks = 1 << 20;
constexpr int32_t kPromptEndsOnly = 1 << 20;  // no checkpoint but that near the end of a prompt
constexpr double kGiB = 1024.0 * 1024 * 1024;

struct Model {
  const char* name;
  int32_t layers;  // every fourth one has KV
};
constexpr Model kModels[] = {{"Qwen3-Next-80B-A3B", 48}, {"Qwen3.5-35B-A3B", 40}};

KvLayout LayoutOf(const Model& model) {
  DenseKv kv = {.layers = model.layers, .kv_heads = 2, .head_dim = 256, .dtype = DType::kBF16};
  for (int32_t layer = 0; layer < model.layers; ++layer) {
    if (layer % 4 != 3) kv.state.layers.push_back(layer);
  }
  kv.state.planes = {{.name = "state", .heads = 2, .dim = 16 * 128 * 128},
                     {.name = "conv", .heads = 2, .dim = 4 * (8 + 8 + 16) * 128}};
  return DenseLayout(kv);
}

// One conversation: its tokens so far, and where each turn of it began.
struct Conversation {
  std::vector<TokenId> tokens;
  std::vector<size_t> turns;
};

// The prefix cache of one worker, and what it found.
class Worker {
 public:
  // Without states: what a cache finds that can resume at every block.
  Worker(const KvLayout& layout, int32_t blocks, int32_t checkpoint_tokens, bool states)
      : cache_(blocks,
               layout.block_tokens,
               true,
               states ? std::vector<KvWindow>{0, kStateWindow} : std::vector<KvWindow>{KvWindow()},
               states ? StateBlocks(layout, std::vector{WholeModel(layout)}) : 0),
        scheduler_(OptionsOf(checkpoint_tokens), cache_) {}

  // Runs the whole workload, which is the same for all workers.
  void Serve() {
    std::vector<Conversation> conversations(kConversations);
    for (int32_t i = 0; i < kConversations; ++i) {
      for (int32_t at = 0; at < kSystemTokens[i % kSystemPrompts]; ++at) {
        conversations[i].tokens.push_back(TokenOf(i % kSystemPrompts, at));
      }
    }
    for (int32_t turn = 0; turn < kTurns; ++turn) {
      for (int32_t first = 0; first < kConversations; first += kAtOnce) {
        ServeTurn(std::span(conversations).subspan(first, kAtOnce));
      }
    }
  }

  const KvCache& cache() const { return cache_; }
  SchedulerCounts counts() const { return scheduler_.Counts(); }

 private:
  static Scheduler::Options OptionsOf(int32_t checkpoint_tokens) {
    Scheduler::Options options;
    options.engine.max_sequences = kAtOnce;
    options.engine.max_step_tokens = 2048;
    options.engine.state_checkpoint_tokens = checkpoint_tokens;
    options.limits = {.context_length = 1 << 20, .vocabulary = kVocabulary, .max_samples = 1};
    return options;
  }

  static TokenId TokenOf(uint64_t stream, uint64_t at) {
    return static_cast<TokenId>((stream * 7919 + at * 31 + at / 50 * stream) % kVocabulary);
  }

  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % static_cast<uint32_t>(high - low + 1));
  }

  // Each conversation sends a message, and gets its answer.
  void ServeTurn(std::span<Conversation> conversations) {
    const uint64_t first_id = next_id_;
    for (Conversation& conversation : conversations) {
      if (!conversation.turns.empty() && Between(1, 100) <= kEditsIn100) {
        const auto kept = static_cast<size_t>(random_() % conversation.turns.size());
        conversation.tokens.resize(conversation.turns[kept]);
        conversation.turns.resize(kept);
      }
      conversation.turns.push_back(conversation.tokens.size());
      for (int32_t left = Between(30, 600); left > 0; --left) {
        conversation.tokens.push_back(static_cast<TokenId>(random_() % kVocabulary));
      }
      Request request;
      request.id = RequestId(next_id_++);
      request.prompt_length = static_cast<int32_t>(conversation.tokens.size());
      request.tokens = conversation.tokens;
      request.max_tokens = Between(50, 800);
      scheduler_.Add(std::move(request), now_);
    }
    while (!scheduler_.idle()) {
      for (const TokenOutput& output : Step()) {
        conversations[output.id.value() - first_id].tokens.push_back(output.token.token);
      }
    }
  }

  std::vector<TokenOutput> Step() {
    now_ += std::chrono::milliseconds(20);
    const StepPlan& plan = scheduler_.Plan(now_);
    std::vector<SampledToken> sampled(static_cast<size_t>(plan.logit_rows));
    for (SampledToken& token : sampled) {
      token.token = static_cast<TokenId>(answers_() % kVocabulary);
    }
    scheduler_.Commit(sampled, now_);
    Outcomes outcomes = scheduler_.TakeOutcomes();
    scheduler_.StoreBlocks();
    cache_.prefix().TakeEvents();
    BATON_CHECK(outcomes.failures.empty(), "{}", Message(outcomes.failures.front().status));
    return std::move(outcomes.tokens);
  }

  static constexpr int32_t kVocabulary = 50000;

  KvCache cache_;
  Scheduler scheduler_;
  std::mt19937 random_{1};
  std::mt19937 answers_{2};
  uint64_t next_id_ = 1;
  Time now_ = Time{} + std::chrono::hours(1);
};

struct Result {
  int64_t computed = 0;  // tokens of prompts
  int64_t cached = 0;
  double cached_gib = 0;
};

Result Run(const KvLayout& layout, int32_t blocks, int32_t checkpoint_tokens, bool states) {
  Worker worker(layout, blocks, checkpoint_tokens, states);
  worker.Serve();
  const SchedulerCounts counts = worker.counts();
  const auto block_bytes = static_cast<double>(ShardBlockBytes(layout, WholeModel(layout)));
  return {counts.prompt_tokens, counts.cached_tokens, worker.cache().cached() * block_bytes / kGiB};
}

void Measure(const Model& model) {
  const KvLayout layout = LayoutOf(model);
  const auto block_bytes = static_cast<double>(ShardBlockBytes(layout, WholeModel(layout)));
  const int32_t state_blocks = StateBlocks(layout, std::vector{WholeModel(layout)});
  const Result ideal = Run(layout, kMaxBlocks, 0, /*states=*/false);
  for (const int32_t gib : kArenas) {
    const auto blocks = static_cast<int32_t>(gib * kGiB / block_bytes);
    // The fifth: as many tokens as have KV of the size of a state.
    for (const int32_t tokens :
         {256, 512, 1024, 2048, state_blocks * layout.block_tokens, 8192, kPromptEndsOnly}) {
      const Result result = Run(layout, std::min(blocks, kMaxBlocks), tokens, /*states=*/true);
      fmt::print(
          "{{\"model\": \"{}\", \"arena_gib\": {}, \"checkpoint_tokens\": {}, "
          "\"state_mib\": {:.1f}, \"prompt_tokens\": {}, \"computed_tokens\": {}, "
          "\"least_computed_tokens\": {}, \"computed_ratio\": {:.3f}, \"cached_gib\": {:.2f}, "
          "\"cached_kv_gib\": {:.2f}}}\n",
          model.name,
          gib,
          tokens == kPromptEndsOnly ? -1 : tokens,
          state_blocks * block_bytes / (1 << 20),
          result.computed + result.cached,
          result.computed,
          ideal.computed,
          static_cast<double>(result.computed) / static_cast<double>(ideal.computed),
          result.cached_gib,
          ideal.cached_gib);
    }
  }
}

}  // namespace
}  // namespace baton

int main() {
  for (const baton::Model& model : baton::kModels) baton::Measure(model);
}

#include "tests/unit/model/rank_comparison.h"

#include <cstring>
#include <utility>

#include <gtest/gtest.h>

#include "common/base/check.h"

namespace baton {

bool SameBits(const std::vector<Logits>& a, const std::vector<Logits>& b) {
  if (a.size() != b.size()) return false;
  for (size_t row = 0; row < a.size(); ++row) {
    if (a[row].size() != b[row].size()) return false;
    if (std::memcmp(a[row].data(), b[row].data(), a[row].size() * sizeof(float)) != 0) return false;
  }
  return true;
}

std::vector<TokenId> MakePrompt(int32_t length, TokenId first, int32_t vocab) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < length; ++i) tokens.push_back((first + 37 * i + i * i % 11) % vocab);
  return tokens;
}

RankComparison::RankComparison(const ModelSpec& spec,
                               const WeightSource& weights,
                               const Degrees& degrees,
                               const RunnerOptions& options)
    : vocab_(spec.vocab) {
  auto alone = StepRunner::Create(spec, weights, options);
  BATON_CHECK(alone.ok(), "{}", Message(alone.status()));
  alone_ = *std::move(alone);
  auto group = RankedRunner::Create(spec, weights, degrees, options);
  BATON_CHECK(group.ok(), "{}", Message(group.status()));
  group_ = *std::move(group);
}

void RankComparison::Step(std::span<const Chunk> chunks) {
  const std::vector<Logits> want = alone_->Step(chunks);
  const auto got = group_->Step(chunks);
  ASSERT_TRUE(got.ok()) << Message(got.status());
  EXPECT_TRUE(SameBits(*got, want));
  CompareKv();
  CompareStates(chunks);
}

void RankComparison::CompareKv() {
  const KvView whole = alone_->kv();
  const auto bytes =
      static_cast<size_t>(whole.block_tokens) * whole.head_dim * ShapeOf(whole.dtype).bytes;
  for (int32_t rank = 0; rank < group_->ranks(); ++rank) {
    const KvShard& shard = group_->rank(rank).decoder().plan().kv_shard;
    const KvView part = group_->rank(rank).kv();
    int64_t different = 0;
    for (int32_t block = 0; block < part.blocks; ++block) {
      for (int32_t layer = 0; layer < part.layers; ++layer) {
        if (whole.PlaceOf(shard.first_layer + layer).group >= whole.groups) continue;  // a state
        for (int32_t head = 0; head < part.kv_heads; ++head) {
          const int32_t model_layer = shard.first_layer + layer;
          if (alone_->GroupOf(block) != whole.PlaceOf(model_layer).group) continue;
          // Latents have no heads that ranks divide, also where those of states are divided.
          const int32_t model_head = whole.one_plane() ? head : shard.first_head + head;
          const auto* k = whole.Key(block, model_layer, model_head);
          const auto* v = whole.Value(block, model_layer, model_head);
          if (std::memcmp(part.Key(block, layer, head), k, bytes) != 0) ++different;
          if (std::memcmp(part.Value(block, layer, head), v, bytes) != 0) ++different;
        }
      }
    }
    EXPECT_EQ(different, 0) << "KV heads of blocks that differ on rank " << rank;
  }
}

void RankComparison::CompareStates(std::span<const Chunk> chunks) {
  if (!alone_->layout().has_state()) return;
  const KvCacheGroup& states = alone_->layout().groups.back();
  for (int32_t rank = 0; rank < group_->ranks(); ++rank) {
    StepRunner& runner = group_->rank(rank);
    const KvShard& shard = runner.decoder().plan().kv_shard;
    for (const int32_t layer : states.layers) {
      const int32_t held = layer - shard.first_layer;
      if (held < 0 || held >= shard.layer_count) continue;
      for (int32_t plane = 0; std::cmp_less(plane, states.planes.size()); ++plane) {
        for (int32_t head = 0; head < shard.head_count; ++head) {
          for (const Chunk& chunk : chunks) {
            EXPECT_EQ(runner.StateOf(chunk.sequence, held, plane, head),
                      alone_->StateOf(chunk.sequence, layer, plane, shard.first_head + head))
                << "layer " << layer << ", plane " << plane << ", rank " << rank;
          }
        }
      }
    }
  }
}

void RankComparison::RunMixedBatches(int32_t longest) {
  const std::vector<TokenId> prompts[] = {MakePrompt(longest, 3, vocab_),
                                          MakePrompt(longest - 10, 100, vocab_),
                                          MakePrompt(9, 200, vocab_)};
  struct Part {
    int32_t sequence;
    size_t tokens;  // 0: the rest
    WantLogits want;
  };
  const std::vector<std::vector<Part>> steps = {
      {{0, 17, WantLogits::kNone}},
      {{0, 3, WantLogits::kAll}, {1, 11, WantLogits::kNone}, {2, 4, WantLogits::kLast}},
      {{0, 1, WantLogits::kLast}, {1, 1, WantLogits::kLast}, {2, 1, WantLogits::kLast}},
      {{1, 7, WantLogits::kNone}, {2, 2, WantLogits::kNone}},
      {{0, 0, WantLogits::kLast}, {1, 1, WantLogits::kAll}, {2, 1, WantLogits::kLast}},
      {{1, 0, WantLogits::kLast}, {2, 1, WantLogits::kLast}},
  };
  size_t done[3] = {};
  for (size_t i = 0; i < steps.size(); ++i) {
    SCOPED_TRACE(fmt::format("step {}", i));
    std::vector<Chunk> chunks;
    for (const Part& part : steps[i]) {
      size_t& from = done[part.sequence];
      const std::span<const TokenId> all = prompts[part.sequence];
      const size_t tokens = part.tokens == 0 ? all.size() - from : part.tokens;
      chunks.push_back({part.sequence, all.subspan(from, tokens), part.want});
      from += tokens;
    }
    Step(chunks);
  }
}

}  // namespace baton

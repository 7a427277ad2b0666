#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/kvcache/layout.h"
#include "tests/fakes/forwarding_executor.h"

namespace baton {

// Checks that the KV and the states of layers do not change after they were reported as final.
class LayerChecker final : public ForwardingExecutor {
 public:
  explicit LayerChecker(Executor& executor)
      : ForwardingExecutor(executor),
        block_groups_(executor.kv_layout().block_groups()),
        places_(PlacesOf(executor.kv_layout(), executor.kv_arenas()[0].shard)),
        kv_(MakeView(executor.kv_layout(),
                     executor.kv_arenas()[0].shard,
                     places_,
                     executor.kv_arenas()[0].memory->data(),
                     executor.kv_blocks())) {
    for (int32_t i = 1; i <= executor.traits().kv.layers; ++i) marks_.push_back(i);
  }
  Status Issue(const StepInput& input,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch&) override {
    told_.clear();
    blocks_.assign(block_groups_, {});
    states_.clear();
    for (const SequenceRows& rows : input.sequences) {
      for (int32_t group = 0; group < block_groups_; ++group) {
        const auto table = input.block_tables.subspan(
            rows.first_block + static_cast<size_t>(group) * rows.table_blocks, rows.table_blocks);
        blocks_[group].insert(table.begin(), table.end());
      }
      // The list of the state that the step writes is the second one.
      const auto written =
          input.block_tables.subspan(rows.state_table + input.state_blocks, input.state_blocks);
      states_.emplace_back(written.begin(), written.end());
    }
    return ForwardingExecutor::Issue(
        input, sampling, out, {marks_, [this](int32_t n) { told_[n] = Layers(n); }});
  }
  Status Await() override {
    Status status = ForwardingExecutor::Await();
    EXPECT_EQ(told_.size(), marks_.size());
    for (const auto& [layers, bytes] : told_) EXPECT_EQ(bytes, Layers(layers)) << layers;
    return status;
  }

 private:
  // The KV and the states of the first layers, in the blocks of the step.
  std::string Layers(int32_t layers) const {
    std::string bytes;
    for (int32_t layer = 0; layer < layers; ++layer) {
      if (kv_.PlaceOf(layer).group >= block_groups_) {
        AppendStates(kv_.PlaceOf(layer).index, bytes);
        continue;
      }
      for (const int32_t block : blocks_[kv_.PlaceOf(layer).group]) {
        const auto* first = reinterpret_cast<const char*>(kv_.Key(block, layer, 0));
        bytes.append(first, static_cast<size_t>(kv_.layer_stride));
      }
    }
    return bytes;
  }

  void AppendStates(int32_t index, std::string& bytes) const {
    for (const std::vector<int32_t>& state : states_) {
      for (int64_t i = 0; i < kv_.state.layer_bytes; ++i) {
        const int64_t at = index * kv_.state.layer_bytes + i;
        const int32_t block = state[static_cast<size_t>(at / kv_.state.block_bytes)];
        const std::byte* const first = kv_.base + block * kv_.block_stride;
        bytes += static_cast<char>(first[at % kv_.state.block_bytes]);
      }
    }
  }

  const int32_t block_groups_;
  const std::vector<KvLayerPlace> places_;
  const KvView kv_;
  std::vector<int32_t> marks_;
  std::vector<std::set<int32_t>> blocks_;     // by cache group
  std::vector<std::vector<int32_t>> states_;  // of each sequence
  std::map<int32_t, std::string> told_;
};

}  // namespace baton

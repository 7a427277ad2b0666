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

// Checks that the KV of layers does not change after it was reported as final.
class LayerChecker final : public ForwardingExecutor {
 public:
  explicit LayerChecker(Executor& executor)
      : ForwardingExecutor(executor),
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
    blocks_.assign(kv_.groups, {});
    for (const SequenceRows& rows : input.sequences) {
      for (int32_t group = 0; group < kv_.groups; ++group) {
        const auto table = input.block_tables.subspan(
            rows.first_block + static_cast<size_t>(group) * rows.table_blocks, rows.table_blocks);
        blocks_[group].insert(table.begin(), table.end());
      }
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
  // The KV of the first layers, in the blocks of the step.
  std::string Layers(int32_t layers) const {
    std::string bytes;
    for (int32_t layer = 0; layer < layers; ++layer) {
      for (const int32_t block : blocks_[kv_.PlaceOf(layer).group]) {
        const auto* first = reinterpret_cast<const char*>(kv_.Key(block, layer, 0));
        bytes.append(first, static_cast<size_t>(kv_.layer_stride));
      }
    }
    return bytes;
  }

  const std::vector<KvLayerPlace> places_;
  const KvView kv_;
  std::vector<int32_t> marks_;
  std::vector<std::set<int32_t>> blocks_;  // by cache group
  std::map<int32_t, std::string> told_;
};

}  // namespace baton

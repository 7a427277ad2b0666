#include "common/model/weights_hash.h"

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/mapped_file.h"
#include "common/model/decoder_weights.h"
#include "common/model/dummy_weights.h"
#include "common/model/fingerprint.h"
#include "common/model/open_model.h"
#include "common/model/rank_plan.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/model_gguf.h"
#include "tests/unit/model/safetensors_writer.h"
#include "tests/unit/model/tiny_gguf.h"

namespace baton {
namespace {

std::vector<std::byte> Numbered(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * i >> 8 ^ i);
  return bytes;
}

TEST(HashOfPieces, IsTheSumOfTheSharesHoweverManyThereAre) {
  for (const size_t size : {size_t{1}, kPieceBytes, 40 * kPieceBytes + 17}) {
    const auto bytes = Numbered(size);
    const Hash128 whole = HashOfPieces("w", bytes, {});
    EXPECT_NE(whole, Hash128());
    for (const int count : {2, 3, 7, 64}) {
      Hash128 sum;
      for (int i = 0; i < count; ++i) {
        sum = SumOf(sum, HashOfPieces("w", bytes, {i, count}));
      }
      EXPECT_EQ(sum, whole) << size << " bytes, " << count << " shares";
    }
  }
}

TEST(HashOfPieces, TellsEveryDifference) {
  auto bytes = Numbered(3 * kPieceBytes);
  std::set<Hash128> seen = {HashOfPieces("w", bytes, {}), HashOfPieces("v", bytes, {})};
  EXPECT_EQ(seen.size(), 2u) << "the name";
  for (const size_t at : {size_t{0}, kPieceBytes - 1, kPieceBytes + 12345, bytes.size() - 1}) {
    bytes[at] ^= std::byte{1};
    EXPECT_TRUE(seen.insert(HashOfPieces("w", bytes, {})).second) << "byte " << at;
  }
  std::swap_ranges(bytes.begin(), bytes.begin() + kPieceBytes, bytes.begin() + kPieceBytes);
  EXPECT_TRUE(seen.insert(HashOfPieces("w", bytes, {})).second) << "the order of the pieces";
}

// The sum of the hashes of all ranks of a group.
Hash128 HashOf(const ModelSpec& spec, const WeightSource& weights, int tensor, int pipeline) {
  CpuDevice device;
  auto ops = MakeCpuOps(device, {.threads = 1});
  BATON_CHECK(ops.ok(), "{}", Message(ops.status()));
  Hash128 sum;
  for (int stage = 0; stage < pipeline; ++stage) {
    for (int rank = 0; rank < tensor; ++rank) {
      RankPlace place;
      place.tensor_parallel = tensor;
      place.pipeline_parallel = pipeline;
      place.tensor_rank = rank;
      place.stage = stage;
      const auto plan = MakeRankPlan(spec, place, ExchangeMode::kGather);
      BATON_CHECK(plan.ok(), "{}", Message(plan.status()));
      const auto loaded = LoadDecoderWeights(
          spec, weights, **ops, {.slice = plan->slice, .hashed = {rank, tensor}});
      BATON_CHECK(loaded.ok(), "{}", Message(loaded.status()));
      sum = SumOf(sum, loaded->hash);
    }
  }
  return sum;
}

TEST(WeightsHash, IsTheSameForEveryShapeOfAGroup) {
  for (const std::string family : {"glm4",
                                   "llama_gqa",
                                   "llama_mqa_tied",
                                   "qwen3_moe",
                                   "phi3",
                                   "granitemoe",
                                   "cohere",
                                   "qwen2_moe",
                                   "gpt_oss",
                                   "llama4_text",
                                   "deepseek_v32",
                                   "gguf/deepseek_v3.gguf",
                                   "gguf/gpt_neox.gguf",
                                   "gguf/kimi_linear.gguf",
                                   "gguf/qwen3_5_moe_text.gguf",
                                   "gpt_neox",
                                   "llama_gptq_int4_actorder",
                                   "llama_awq_int4",
                                   "llama_ct_nvfp4",
                                   "qwen3_moe_fp8_block",
                                   "gpt_oss_mxfp4"}) {
    const auto model = OpenModel(TinyModelPath(family));
    ASSERT_TRUE(model.ok()) << model.status();
    const DummyWeights dummy(3);
    const std::vector<const WeightSource*> sources = {model->weights.get(), &dummy};
    for (const WeightSource* weights : sources) {
      const Hash128 whole = HashOf(model->spec, *weights, 1, 1);
      EXPECT_NE(whole, Hash128());
      for (const auto& [tensor, pipeline] :
           std::vector<std::pair<int, int>>{{2, 1}, {1, 2}, {2, 2}, {1, 3}}) {
        if (std::cmp_greater(pipeline, model->spec.layers.size())) continue;
        EXPECT_EQ(HashOf(model->spec, *weights, tensor, pipeline), whole)
            << family << " " << tensor << " x " << pipeline;
      }
    }
  }
}

TEST(WeightsHash, OfStackedExpertsIsTheSameForEveryShapeOfAGroup) {
  const auto model = OpenModel(BATON_TEST_DATA "/tiny/mixtral");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto file =
      WriteModel(model->spec, FloatsOf(*model->weights, model->spec), VectorsOf(*model->weights))
          .Finish();
  const auto spec = SpecOf(file);
  const auto weights = WeightsOf(file);
  ASSERT_TRUE(spec.ok() && weights.ok());
  EXPECT_EQ(HashOf(*spec, **weights, 2, 2), HashOf(*spec, **weights, 1, 1));
}

// Gate and up are in turn in one tensor, so they are hashed together.
TEST(WeightsHash, CoversEveryTensorOfGptOss) {
  const std::string path = BATON_TEST_DATA "/tiny/gpt_oss";
  const auto model = OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  const Hash128 whole = HashOf(model->spec, *model->weights, 1, 1);
  EXPECT_TRUE(model->weights->Unread().empty());
  const TemporaryFolder folder;
  folder.Write("config.json", *ReadFile(path + "/config.json"));
  for (const std::string name : {"self_attn.sinks",
                                 "mlp.router.bias",
                                 "mlp.experts.gate_up_proj",
                                 "mlp.experts.gate_up_proj_bias",
                                 "mlp.experts.down_proj",
                                 "mlp.experts.down_proj_bias"}) {
    for (const bool last : {false, true}) {
      HeldTensors tensors = TensorsIn(path);
      std::vector<std::byte>& bytes = tensors.at("model.layers.2." + name).bytes;
      (last ? bytes.back() : bytes.front()) ^= std::byte{1};
      folder.Write("model.safetensors", SafetensorsFileOf(tensors));
      const auto tuned = OpenModel(folder.path());
      ASSERT_TRUE(tuned.ok()) << tuned.status();
      EXPECT_NE(HashOf(tuned->spec, *tuned->weights, 1, 1), whole) << name;
    }
  }
}

// The first byte of each tensor of a layer's weights, by the tensor's name.
std::map<std::string, size_t> FirstBytes(const std::string& file, std::string_view layer) {
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  const auto tensors = nlohmann::json::parse(file.substr(sizeof(header), header));
  std::map<std::string, size_t> first;
  for (const auto& [name, tensor] : tensors.items()) {
    if (name.find(layer) == std::string::npos) continue;
    first[name] = sizeof(header) + header + tensor["data_offsets"][0].get<size_t>();
  }
  return first;
}

// Numbers, scales, zero points and what else they have.
TEST(WeightsHash, CoversEveryTensorOfQuantizedWeights) {
  for (const std::string family :
       {"llama_awq_int4", "llama_ct_nvfp4", "qwen3_moe_fp8_block", "gpt_oss_mxfp4"}) {
    const std::string path = BATON_TEST_DATA "/tiny/" + family;
    const auto model = OpenModel(path);
    ASSERT_TRUE(model.ok()) << model.status();
    const Hash128 whole = HashOf(model->spec, *model->weights, 1, 1);
    EXPECT_TRUE(model->weights->Unread().empty());
    std::string file = *ReadFile(path + "/model.safetensors");
    const TemporaryFolder folder;
    folder.Write("config.json", *ReadFile(path + "/config.json"));
    const auto first_bytes = FirstBytes(file, ".layers.1.");
    EXPECT_GT(first_bytes.size(), 15u);
    for (const auto& [name, at] : first_bytes) {
      file[at] = static_cast<char>(file[at] ^ 1);
      folder.Write("model.safetensors", file);
      const auto tuned = OpenModel(folder.path());
      ASSERT_TRUE(tuned.ok()) << tuned.status();
      EXPECT_NE(HashOf(tuned->spec, *tuned->weights, 1, 1), whole) << family << " " << name;
      file[at] = static_cast<char>(file[at] ^ 1);
    }
  }
}

// The fingerprint reads only the ends and the middle of each tensor.
TEST(WeightsHash, TellsWhatTheFingerprintDoesNotTell) {
  const std::string path = BATON_TEST_DATA "/tiny/llama_gqa";
  const auto model = OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  HeldTensors tensors = TensorsIn(path);
  HeldTensor& down = tensors.at("model.layers.1.mlp.down_proj.weight");
  ASSERT_EQ(down.bytes.size(), 40u << 10);
  down.bytes[10'000] ^= std::byte{1};
  const TemporaryFolder folder;
  folder.Write("config.json", *ReadFile(path + "/config.json"));
  folder.Write("model.safetensors", SafetensorsFileOf(tensors));
  const auto tuned = OpenModel(folder.path());
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_EQ(Fingerprint(tuned->spec, *tuned->weights), Fingerprint(model->spec, *model->weights));
  EXPECT_NE(HashOf(tuned->spec, *tuned->weights, 1, 1), HashOf(model->spec, *model->weights, 1, 1));
}

TEST(WeightsHash, OfDummyWeightsTellsTheirSeed) {
  const auto model = OpenModel(BATON_TEST_DATA "/tiny/llama_gqa");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(HashOf(model->spec, DummyWeights(1), 1, 1), HashOf(model->spec, DummyWeights(1), 1, 1));
  EXPECT_NE(HashOf(model->spec, DummyWeights(1), 1, 1), HashOf(model->spec, DummyWeights(2), 1, 1));
}

}  // namespace
}  // namespace baton

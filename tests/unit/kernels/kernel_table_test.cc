#include "kernels/cuda/table/kernel_table.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/table/attention_request.h"
#include "kernels/cuda/table/experts_request.h"
#include "kernels/cuda/table/gemm_request.h"
#include "kernels/cuda/table/latent_request.h"
#include "kernels/cuda/table/variant_check.h"

// What the kernel table chooses, as a user sees it: for shapes of models and cards of all
// architectures, the kernels and the number of rows from which each is used.
namespace baton::cuda {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

DeviceProperties Card(int32_t architecture) {
  const bool large = architecture == 90 || architecture / 10 == 10;
  DeviceProperties device;
  device.architecture = device.code_architecture = architecture;
  device.sm_count = 132;
  device.block_shared_bytes = (large ? 227 : architecture == 80 ? 163 : 99) << 10;
  return device;
}

DeviceProperties PortableOnHopper() {
  DeviceProperties device = Card(90);
  device.portable = true;
  return device;
}

DecodeLimits LimitsOf(const DeviceProperties& device) {
  DecodeLimits limits;
  limits.device = device;
  limits.clusters = MayRun(KernelFamily::kClusters, device);
  for (auto& active : limits.active_clusters) {
    constexpr int32_t kResident[] = {66, 31, 14, 8};
    std::ranges::copy(kResident, active);
  }
  return limits;
}

using Forms = std::function<std::vector<GemmForm>(int64_t rows)>;

// "1 gemm/gemv, 2 gemm/skinny": each kernel with the first number of rows for which it is chosen.
std::string Choices(const DeviceProperties& device, int64_t most, const Forms& forms) {
  std::string text;
  std::string last;
  for (int64_t rows = 1; rows <= most; ++rows) {
    std::string kernel = "none";
    for (const GemmForm& form : forms(rows)) {
      const KernelRule* const rule = Choose(form.request, device);
      if (rule == nullptr) continue;
      kernel = RowOf(rule->kernel).name;
      break;
    }
    if (kernel != last) text += fmt::format("{}{} {}", last.empty() ? "" : ", ", rows, kernel);
    last = kernel;
  }
  return text;
}

std::string Gemms(const DeviceProperties& device,
                  const ModelGemm& gemm,
                  bool deterministic = false) {
  return Choices(device, 1100, [&](int64_t rows) { return FormsOf(gemm, rows, deterministic); });
}

constexpr ModelGemm kQkv = {.n = 6144, .k = 4096};
constexpr ModelGemm kDown = {.n = 4096, .k = 14336};
constexpr ModelGemm kGateUp = {.n = 28672, .k = 4096, .silu_mul = true};
constexpr ModelGemm kHead = {.n = 128256, .k = 4096, .f32_out = true};

ModelGemm InFp8(ModelGemm gemm) {
  gemm.fp8 = true;
  return gemm;
}

TEST(KernelTable, ChoosesGemmsOfHopper) {
  const DeviceProperties h200 = Card(90);
  EXPECT_EQ(Gemms(h200, kQkv), "1 gemm/gemv, 2 gemm/skinny, 33 cuBLASLt");
  EXPECT_EQ(Gemms(h200, kHead), "1 gemm/gemv, 2 gemm/skinny, 33 cuBLASLt");
  EXPECT_EQ(Gemms(h200, kDown), "1 gemm/gemv, 2 gemm/skinny, 65 cuBLASLt");
  EXPECT_EQ(Gemms(h200, kGateUp), "1 gemm/gemv, 2 gemm/skinny, 33 gemm/gated, 257 cuBLASLt");
  EXPECT_EQ(Gemms(h200, InFp8(kDown)),
            "1 gemm/gemv, 2 gemm/skinny, 33 cuBLASLt, FP8, 1024 cuBLASLt, FP8 with scales");
  EXPECT_EQ(Gemms(h200, InFp8(kGateUp)),
            "1 gemm/gemv, 2 gemm/skinny, 33 gemm/gated, 257 cuBLASLt, FP8, 1024 cuBLASLt, FP8 with "
            "scales");
  // k is a multiple of 960 or 768, as of gpt-oss-20b and Gemma 3 27B; then of none of the GEMV's
  // chunks, then not even of a span.
  EXPECT_EQ(Gemms(h200, {.n = 5120, .k = 2880}), "1 gemm/gemv, 2 gemm/skinny, 33 cuBLASLt");
  EXPECT_EQ(Gemms(h200, {.n = 8192, .k = 5376}), "1 gemm/gemv, 2 gemm/skinny, 33 cuBLASLt");
  EXPECT_EQ(Gemms(h200, {.n = 576, .k = 576}), "1 gemm/skinny, 33 cuBLASLt");
  EXPECT_THAT(Gemms(h200, InFp8({.n = 5120, .k = 2880})), Not(HasSubstr("gemv")));
  EXPECT_EQ(Gemms(h200, {.n = 576, .k = 72}), "1 cuBLASLt");
  // No kernel of ours fuses a bias and silu · up, so that silu · up is a kernel of its own.
  ModelGemm biased = kGateUp;
  biased.bias = true;
  EXPECT_EQ(Gemms(h200, biased), "1 gemm/gemv, 2 gemm/skinny, 33 cuBLASLt");
}

TEST(KernelTable, ChoosesOneOrderOfSumsInDeterministicMode) {
  EXPECT_EQ(Gemms(Card(90), kQkv, true), "1 gemm/sequential, 65 cuBLASLt");
  EXPECT_EQ(Gemms(Card(90), kGateUp, true), "1 gemm/sequential, 65 cuBLASLt");
  EXPECT_EQ(Gemms(Card(90), InFp8(kQkv), true), "1 gemm/sequential, 33 cuBLASLt, FP8");
  for (const KernelRule& rule : KernelRules()) {
    const bool chosen = rule.mode == RuleMode::kDeterministic;
    EXPECT_FALSE(chosen && RowOf(rule.kernel).order == OrderClass::kByRows)
        << RowOf(rule.kernel).name;
  }
}

TEST(KernelTable, ChoosesGemmsOfCublasLtElsewhere) {
  for (const int32_t architecture : {80, 86, 89, 100, 120}) {
    SCOPED_TRACE(architecture);
    for (const ModelGemm& gemm : {kQkv, kDown, kGateUp, kHead}) {
      EXPECT_EQ(Gemms(Card(architecture), gemm), "1 cuBLASLt");
    }
    EXPECT_EQ(Gemms(Card(architecture), InFp8(kDown)),
              architecture < 89 ? "1 none" : "1 cuBLASLt, FP8");
  }
  EXPECT_EQ(Gemms(PortableOnHopper(), kGateUp), "1 cuBLASLt");
  EXPECT_EQ(Gemms(PortableOnHopper(), InFp8(kGateUp)), "1 cuBLASLt, FP8");
}

struct AttentionCase {
  AttentionHeads heads = {.q_heads = 32, .kv_heads = 8, .head_dim = 128};
  DType kv = DType::kBF16;
  bool deterministic = false;

  KvView View() const {
    KvView view;
    view.dtype = kv;
    view.kv_heads = heads.kv_heads;
    view.head_dim = heads.head_dim;
    view.block_tokens = 16;
    view.head_stride = int64_t{16} * heads.head_dim * static_cast<int64_t>(ShapeOf(kv).bytes);
    return view;
  }
  // Decoding rows with `context` positions each.
  std::string Rows(const DeviceProperties& device, int32_t context) const {
    const DecodeLimits limits = LimitsOf(device);
    return Choices(device, 300, [&](int64_t rows) {
      const auto count = static_cast<int32_t>(rows);
      const DecodeBatch batch = {count, count, context, rows * context};
      return std::vector<GemmForm>{
          {SingleRowsRequest(heads, View(), limits, batch, deterministic), ""}};
    });
  }
  // A prompt chunk.
  std::string Chunks(const DeviceProperties& device) const {
    return Choices(device, 4000, [&](int64_t rows) {
      const ChunkBatch chunks = {.count = 1,
                                 .longest = static_cast<int32_t>(rows),
                                 .tiles = Flash3Tiles(rows, heads.head_dim)};
      return std::vector<GemmForm>{
          {ChunksRequest(heads, View(), LimitsOf(device), chunks, deterministic), ""}};
    });
  }
};

TEST(KernelTable, ChoosesAttentionOfDecodingRows) {
  const AttentionCase bf16;
  // Between 9 and 13 rows, clusters of two blocks would read 1,024 positions each while other SMs
  // have nothing to do; of 14 rows they are long enough for all.
  EXPECT_EQ(bf16.Rows(Card(90), 2048),
            "1 attention/cluster, 9 attention/stream_k, 14 attention/cluster, 17 "
            "attention/stream_k");
  EXPECT_EQ(bf16.Rows(Card(90), 8192), "1 attention/stream_k");
  EXPECT_EQ(bf16.Rows(Card(80), 2048), "1 attention/flash2, tiles of 16 rows");
  EXPECT_EQ(bf16.Rows(PortableOnHopper(), 2048), "1 attention/flash2, tiles of 16 rows");
  EXPECT_EQ(bf16.Rows(Card(100), 2048),
            "1 attention/cluster, 9 attention/flash2, tiles of 16 rows, 14 attention/cluster, 17 "
            "attention/flash2, tiles of 16 rows");
  EXPECT_EQ(AttentionCase{.kv = DType::kFp8}.Rows(Card(90), 2048), "1 attention/cluster");
  EXPECT_EQ(AttentionCase{.kv = DType::kFp8}.Rows(Card(90), 512),
            "1 attention/cluster, 17 attention/stream_k");
  EXPECT_EQ(AttentionCase{.deterministic = true}.Rows(Card(90), 64), "1 attention/stream_k");
  const AttentionHeads small = {.q_heads = 9, .kv_heads = 3, .head_dim = 64};
  EXPECT_EQ((AttentionCase{.heads = small, .deterministic = true}.Rows(Card(90), 64)),
            "1 attention/cluster");
  const AttentionHeads odd = {.q_heads = 8, .kv_heads = 8, .head_dim = 80};
  EXPECT_EQ(AttentionCase{.heads = odd}.Rows(Card(90), 64), "1 attention/portable");
  EXPECT_EQ(AttentionCase{.kv = DType::kF16}.Rows(Card(90), 64), "1 attention/portable");
}

TEST(KernelTable, ChoosesAttentionOfChunks) {
  EXPECT_EQ(AttentionCase{}.Chunks(Card(90)),
            "1 attention/flash2, tiles of 64 and 128 rows, 257 attention/flash3");
  EXPECT_EQ(AttentionCase{.deterministic = true}.Chunks(Card(90)), "1 attention/flash3");
  EXPECT_EQ(AttentionCase{}.Chunks(Card(89)), "1 attention/flash2, tiles of 64 and 128 rows");
  const AttentionHeads window = {.q_heads = 32, .kv_heads = 8, .head_dim = 128, .window = 1000};
  EXPECT_EQ(AttentionCase{.heads = window}.Chunks(Card(90)),
            "1 attention/flash2, tiles of 64 and 128 rows, 257 attention/flash3, 1001 "
            "attention/flash2, tiles of 64 and 128 rows");
  EXPECT_EQ((AttentionCase{.heads = window, .deterministic = true}.Chunks(Card(90))),
            "1 attention/flash2, tiles of 64 and 128 rows");
}

TEST(KernelTable, ChoosesExperts) {
  const ExpertShape bf16 = {.experts = 128, .experts_per_token = 8, .hidden = 2048, .width = 768};
  ExpertShape fp8 = bf16;
  fp8.gate_up = fp8.down = DType::kFp8;
  const auto choices = [](const DeviceProperties& device, const ExpertShape& shape, bool always) {
    return Choices(device, 200, [&](int64_t rows) {
      return std::vector<GemmForm>{{ExpertsRequest(shape, rows, always), ""}};
    });
  };
  EXPECT_EQ(choices(Card(90), bf16, false), "1 experts/grouped_gemm, 128 experts/wgmma_gemm");
  EXPECT_EQ(choices(Card(90), bf16, true), "1 experts/grouped_gemm, 128 experts/wgmma_gemm");
  EXPECT_EQ(choices(Card(90), fp8, false), "1 experts/grouped_gemm, 128 experts/wgmma_gemm, FP8");
  EXPECT_EQ(choices(Card(90), fp8, true), "1 experts/grouped_gemm");
  EXPECT_EQ(choices(Card(80), bf16, false), "1 experts/grouped_gemm");
  ExpertShape narrow = bf16;
  narrow.width = 72;  // no whole span
  EXPECT_EQ(choices(Card(90), narrow, false), "1 experts/grouped_gemm");
  const auto scores = [](bool deterministic) {
    return Choices(Card(90), 9, [&](int64_t rows) {
      return std::vector<GemmForm>{{ExpertScoresRequest(rows, deterministic), ""}};
    });
  };
  EXPECT_EQ(scores(false), "1 experts/routing, without tensor cores, 5 experts/routing");
  EXPECT_EQ(scores(true), "1 experts/routing");
}

// A kernel without a rule would never run, and an op without a portable kernel not everywhere.
TEST(KernelTable, EveryKernelHasARuleAndEveryOpAPortableKernel) {
  for (const KernelRow& row : KernelRows()) {
    const auto rule = std::ranges::find(KernelRules(), row.id, &KernelRule::kernel);
    ASSERT_NE(rule, KernelRules().end()) << row.name;
    EXPECT_NE(row.ops & SetOf(rule->op), 0u) << row.name;
  }
  for (const KernelOp op : {KernelOp::kGemm,
                            KernelOp::kSingleRows,
                            KernelOp::kFewRows,
                            KernelOp::kChunks,
                            KernelOp::kRecurrent,
                            KernelOp::kRecurrentRows,
                            KernelOp::kRecurrentChunks,
                            KernelOp::kExpertScores,
                            KernelOp::kExperts,
                            KernelOp::kSampling}) {
    EXPECT_TRUE(std::ranges::any_of(KernelRules(), [&](const KernelRule& rule) {
      return rule.op == op && RowOf(rule.kernel).family == KernelFamily::kPortable &&
             rule.mode == RuleMode::kAlways && rule.when.all().empty();
    })) << Name(op);
  }
}

// What `kernel` is refused for.
std::string ReasonOf(KernelId kernel,
                     const KernelRequest& request,
                     const DeviceProperties& device) {
  for (const KernelRefusal& refusal : Explain(request, device).refused) {
    if (refusal.kernel == kernel) return refusal.reason;
  }
  return "";
}

TEST(KernelTable, ARefusalNamesWhatIsMissing) {
  const GemmShape shape = {.rows = 48, .n = 6144, .k = 4096};
  const KernelRequest request = GemmRequest(shape, false);
  const auto reason = [&](KernelId kernel, int32_t architecture) {
    return ReasonOf(kernel, request, Card(architecture));
  };
  EXPECT_EQ(reason(KernelId::kGemv, 90), "computes one row alone");
  EXPECT_EQ(reason(KernelId::kSkinnyGemm, 90),
            "slower here: rows ≤ 32 is false (rows 48); slower here: k ≥ 2 · n is false (k 4096, n "
            "6144)");
  EXPECT_EQ(reason(KernelId::kGatedGemm, 90), "is only for silu · up");
  EXPECT_EQ(reason(KernelId::kSkinnyGemm, 80), "needs sm_90a, and this is sm_80");
  EXPECT_EQ(ReasonOf(KernelId::kSkinnyGemm, request, PortableOnHopper()),
            "needs sm_90a, and engine.kernels is portable");
  GemmShape odd = shape;
  odd.k = 72;
  EXPECT_EQ(ReasonOf(KernelId::kSkinnyGemm, GemmRequest(odd, false), Card(90)),
            "bytes of k a multiple of 128 is false (bytes of k 144)");
  for (const KernelId kernel : {KernelId::kSkinnyGemm, KernelId::kSequentialGemm}) {
    for (int64_t GemmShape::*const number : {&GemmShape::n, &GemmShape::k}) {
      GemmShape empty = shape;
      empty.*number = 0;
      EXPECT_FALSE(Computes(kernel, GemmRequest(empty, false))) << "nothing to load with TMA";
    }
  }
  EXPECT_EQ(ReasonOf(KernelId::kSkinnyGemm, GemmRequest(shape, true), Card(90)),
            "the order of its sums depends on the number of rows (engine.deterministic)");
  GemmShape wide = shape;
  wide.rows = 1;
  wide.k = 49152;
  EXPECT_EQ(ReasonOf(KernelId::kGemv, GemmRequest(wide, false), Card(90)),
            "needs 233472 bytes of shared memory; a thread block has 232448");
}

TEST(KernelTable, AnOpWithoutAKernelIsRefusedWithTheNearest) {
  const GemmShape fp8 = {.rows = 8, .n = 4096, .k = 4096, .operands = Operands::kFp8};
  EXPECT_TRUE(CheckChoice(GemmRequest(fp8, false), Card(89)).ok());
  const Status status = CheckChoice(GemmRequest(fp8, false), Card(86));
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(
      Message(status),
      "no kernel computes the GEMM of fp8 on sm_86; the nearest are gemm/portable, FP8: needs "
      "sm_89 or newer, and this is sm_86; cuBLASLt, FP8: needs sm_89 or newer, and this is "
      "sm_86; gemm/sequential: needs sm_90a, and this is sm_86; in bf16 one does");
  GemmShape silu = fp8;
  silu.operands = Operands::kBf16;
  silu.fusions = SetOf(Fusion::kSiluMul);
  EXPECT_THAT(std::string(Message(CheckChoice(GemmRequest(silu, false), PortableOnHopper()))),
              EndsWith("; with engine.kernels: auto one does"));
  EXPECT_THAT(std::string(Message(CheckChoice(GemmRequest(silu, true), Card(90)))),
              EndsWith("; with engine.deterministic: false one does"));
  DeviceProperties old_code = Card(90);
  old_code.code_architecture = 80;
  EXPECT_THAT(std::string(Message(CheckChoice(GemmRequest(silu, false), old_code))),
              EndsWith("; a CUDA backend with code for sm_90 has one"));
}

// A GEMM of one order of sums runs on every card, so that deterministic mode does.
TEST(KernelTable, EveryCardHasAnOrderOfSums) {
  for (const DeviceProperties& device : {Card(80), Card(86), Card(90), PortableOnHopper()}) {
    SCOPED_TRACE(device.architecture);
    const GemmShape odd = {.rows = 70, .n = 61, .k = 131, .operand_alignment = 2};
    EXPECT_TRUE(Runs(KernelId::kPortableGemm, GemmRequest(odd, true), device));
    GemmShape fp8 = odd;
    fp8.operands = Operands::kFp8;
    EXPECT_EQ(Runs(KernelId::kPortableFp8Gemm, GemmRequest(fp8, true), device),
              device.architecture >= 89);
    for (const ModelGemm& gemm : {kQkv, kGateUp, kHead}) {
      for (const GemmForm& form : FormsOf(gemm, 40, true)) {
        const KernelRule* const rule = Choose(form.request, device);
        EXPECT_TRUE(rule == nullptr || RowOf(rule->kernel).order != OrderClass::kByRows);
      }
    }
  }
}

// No card has so little: each kernel says itself what it needs.
TEST(KernelTable, LessSharedMemoryLeadsToAnotherKernel) {
  DeviceProperties small = Card(80);
  small.block_shared_bytes = 64 << 10;
  EXPECT_EQ(AttentionCase{}.Rows(small, 2048), "1 attention/portable");
  EXPECT_EQ(AttentionCase{}.Chunks(small), "1 attention/portable");
  EXPECT_EQ(Gemms(small, kQkv, true), "1 cuBLASLt");
  DeviceProperties h200 = Card(90);
  h200.block_shared_bytes = 99 << 10;
  EXPECT_EQ(Gemms(h200, kQkv), "1 cuBLASLt");
  EXPECT_THAT(AttentionCase{}.Rows(h200, 8192), Not(HasSubstr("stream_k")));
  const ExpertShape experts = {.experts = 8, .experts_per_token = 2, .hidden = 64, .width = 64};
  EXPECT_THAT(std::string(Message(CheckChoice(ExpertsRequest(experts, 1, false), small))),
              HasSubstr("experts/grouped_gemm: needs 101376 bytes of shared memory; a thread block "
                        "has 65536"));
}

TEST(KernelTable, ChoosesKernelsThatHaveCapsSinksAndBiasesOfExperts) {
  // Gemma 2 27B has heads of 128 with a cap, gpt-oss heads of 64 with sinks and windows.
  AttentionCase capped;
  capped.heads = {.q_heads = 32, .kv_heads = 16, .head_dim = 128, .soft_cap = true};
  EXPECT_EQ(capped.Rows(Card(90), 2048),
            "1 attention/cluster, 5 attention/flash2, tiles of 16 rows, 7 attention/cluster, 9 "
            "attention/flash2, tiles of 16 rows");
  EXPECT_EQ(capped.Chunks(Card(90)),
            "1 attention/flash2, tiles of 64 and 128 rows, 257 attention/flash3");
  AttentionCase with_sinks;
  with_sinks.heads = {.q_heads = 64, .kv_heads = 8, .head_dim = 64, .sinks = true};
  EXPECT_EQ(with_sinks.Rows(Card(90), 2048),
            "1 attention/cluster, 9 attention/flash2, tiles of 16 rows, 14 attention/cluster, 17 "
            "attention/flash2, tiles of 16 rows");
  EXPECT_EQ(with_sinks.Chunks(Card(90)),
            "1 attention/flash2, tiles of 64 and 128 rows, 193 attention/flash3");
  EXPECT_EQ(with_sinks.Rows(Card(80), 2048), "1 attention/flash2, tiles of 16 rows");
  with_sinks.deterministic = true;
  EXPECT_EQ(with_sinks.Rows(Card(90), 2048), "1 attention/cluster");
  EXPECT_EQ(with_sinks.Chunks(Card(90)), "1 attention/flash3");
  with_sinks.deterministic = false;
  with_sinks.heads.window = 128;
  EXPECT_EQ(with_sinks.Rows(Card(90), 128), "1 attention/cluster");
  EXPECT_EQ(with_sinks.Chunks(Card(90)), "1 attention/flash2, tiles of 64 and 128 rows");
  ExpertShape experts = {.experts = 8, .experts_per_token = 2, .hidden = 512, .width = 512};
  EXPECT_TRUE(Runs(KernelId::kWgmmaExperts, ExpertsRequest(experts, 8192, false), Card(90)));
  experts.bias = experts.clamped_gate = true;
  EXPECT_TRUE(Runs(KernelId::kWgmmaExperts, ExpertsRequest(experts, 8192, false), Card(90)));
  EXPECT_TRUE(Runs(KernelId::kGroupedGemm, ExpertsRequest(experts, 8192, false), Card(90)));
}

TEST(KernelTable, WhatFewFamiliesNeedRunsInThePortableKernels) {
  AttentionCase in_chunks;  // Llama 4
  in_chunks.heads = {.q_heads = 40, .kv_heads = 8, .head_dim = 128, .chunks = true};
  EXPECT_EQ(in_chunks.Rows(Card(90), 2048), "1 attention/portable");
  EXPECT_EQ(in_chunks.Chunks(Card(90)), "1 attention/portable");
  const ExpertShape experts = {.experts = 8, .experts_per_token = 2, .hidden = 512, .width = 512};
  ExpertShape ungated = experts;  // Nemotron-H
  ungated.ungated = true;
  ExpertShape weighted = experts;  // Llama 4
  weighted.weighted_inputs = true;
  for (const ExpertShape& shape : {ungated, weighted}) {
    const KernelRequest request = ExpertsRequest(shape, 8192, false);
    EXPECT_FALSE(Runs(KernelId::kWgmmaExperts, request, Card(90)));
    EXPECT_TRUE(Runs(KernelId::kGroupedGemm, request, Card(90)));
  }
}

TEST(VariantCheckTest, NamesWhatTheBackendLacks) {
  EXPECT_TRUE(CheckVariants({}).ok());
  const OpVariant there[] = {OpVariant::kLayerNorm,
                             OpVariant::kAttentionSinks,
                             OpVariant::kLatentAttention,
                             OpVariant::kDeltaNet,
                             OpVariant::kChannelDelta,
                             OpVariant::kStateSpace,
                             OpVariant::kSelectiveScan};
  EXPECT_TRUE(CheckVariants(there).ok());
  const OpVariant variants[] = {OpVariant::kSparseAttention, OpVariant::kRouting};
  const Status status = CheckVariants(variants);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(Message(status),
            "the CUDA backend does not have what the model needs: attention to selected tokens; "
            "the CPU backend does (engine.device: cpu)");
}

TEST(KernelTable, LatentsHaveTensorCoresWhereTheirSizesFit) {
  const auto kernel =
      [](const LatentShape& shape, DType kv, int32_t architecture, int32_t block_tokens = 16) {
        const KernelRule* const rule =
            Choose(LatentRequest(shape, kv, block_tokens, false), Card(architecture));
        return rule == nullptr ? "none" : std::string(RowOf(rule->kernel).name);
      };
  const LatentShape deepseek = {
      .heads = 128, .rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
  LatentShape small = deepseek;
  small.rank = 256;
  LatentShape narrow = deepseek;
  narrow.rope_dim = 32;
  LatentShape large = deepseek;
  large.rank = 1024;
  for (const int32_t architecture : {80, 86, 90, 120}) {
    const bool hopper = architecture == 90;
    EXPECT_EQ(kernel(deepseek, DType::kBF16, architecture),
              hopper ? "latent/hopper_latents" : "latent/tiled_latents");
    EXPECT_EQ(kernel(deepseek, DType::kBF16, architecture, 12), "latent/tiled_latents");
    EXPECT_EQ(kernel(deepseek, DType::kF16, architecture), "attention/portable, latents");
    EXPECT_EQ(kernel(small, DType::kBF16, architecture), "attention/portable, latents");
    EXPECT_EQ(kernel(narrow, DType::kBF16, architecture), "attention/portable, latents");
    EXPECT_EQ(kernel(deepseek, DType::kFp8, architecture), "none");
    EXPECT_EQ(kernel(large, DType::kBF16, architecture), "none");
  }
}

}  // namespace
}  // namespace baton::cuda

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/table/architecture.h"
#include "kernels/cuda/table/kernel_request.h"

// The kernel table: what each kernel of the CUDA backend can compute (KernelRow), and in which
// order kernels are preferred where several can (KernelRule). GEMM dispatch, attention and experts
// ask it, and `baton kernels` prints it. Plain data and pure functions without CUDA.
namespace baton::cuda {

enum class KernelId : uint8_t {
  kGemv,
  kSkinnyGemm,
  kGatedGemm,
  kSequentialGemm,
  kPortableGemm,
  kPortableFp8Gemm,
  kCublas,
  kCublasFp8,
  kCublasScaled,
  kPackedGemm,
  kWidenedGemm,
  kStreamK,
  kCluster,
  kFlash2Rows,
  kFlash3,
  kFlash2Chunks,
  kPortableAttention,
  kHopperLatents,
  kTiledLatents,
  kPortableLatents,
  kHeadGemm,
  kDecodeRows,
  kChunkRows,
  kUpdateStates,
  kScanStates,
  kFewScores,
  kScores,
  kWgmmaExperts,
  kWgmmaFp8Experts,
  kGroupedGemm,
  kPackedWgmmaExperts,
  kPackedExperts,
  kSampling,
};

// What a row's bits depend on besides the row. Kernels of kByRows are refused in deterministic
// mode (notes/deterministic.md has the orders).
enum class OrderClass : uint8_t {
  kByRows,       // the number of rows
  kAscending,    // nothing: one accumulator adds in ascending k
  kAlgorithm,    // nothing: deterministic mode uses algorithms of cuBLASLt that keep ascending k
  kFixedSplits,  // nothing: contexts, or inputs, are split at fixed positions
  kRowAlone,     // nothing: the kernel computes each row alone
};
std::string_view Name(OrderClass order);

enum class Relation : uint8_t { kAtMost, kAtLeast, kEqual, kMultiple };

// times · left  relation  number · right; kMultiple: `left` is a multiple of `number`.
struct Condition {
  Property left = Property::kOne;
  Relation relation = Relation::kEqual;
  int64_t number = 1;
  Property right = Property::kOne;
  int64_t times = 1;
  bool or_next = false;  // this condition or the next one must hold

  constexpr Condition Or() const {
    Condition joined = *this;
    joined.or_next = true;
    return joined;
  }
};

// Up to kMaxConditions conditions. All must hold.
class Conditions {
 public:
  static constexpr size_t kMaxConditions = 8;
  constexpr Conditions() = default;
  constexpr Conditions(std::initializer_list<Condition> all) {
    for (const Condition& one : all) all_[count_++] = one;
  }
  constexpr std::span<const Condition> all() const { return {all_.data(), count_}; }

 private:
  std::array<Condition, kMaxConditions> all_ = {};
  size_t count_ = 0;
};

// What one kernel can compute.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): in the order in which one reads a row
struct KernelRow {
  KernelId id = KernelId::kCublas;
  std::string_view name = {};  // its file in kernels/cuda, or the library that has it
  EnumSet ops = 0;             // of KernelOp
  KernelFamily family = KernelFamily::kPortable;
  EnumSet operands = 0;  // of Operands
  int32_t max_rows = INT32_MAX;
  EnumSet fuses = 0;     // of Fusion: what it can do besides its op
  EnumSet needs = 0;     // of Fusion: what it always does
  EnumSet not_both = 0;  // of Fusion: what it cannot do together
  OrderClass order = OrderClass::kByRows;
  // The most shared memory of a thread block, and bytes of it for each input of a GEMM.
  int32_t shared_bytes = 0;
  int32_t shared_bytes_of_input = 0;
  Conditions shape = {};
};

enum class RuleMode : uint8_t { kAlways, kFast, kDeterministic };

// Where a kernel is preferred to those of later rules.
struct KernelRule {
  KernelOp op = KernelOp::kGemm;
  KernelId kernel = KernelId::kCublas;
  RuleMode mode = RuleMode::kAlways;
  EnumSet operands = ~EnumSet{0};
  Conditions when = {};
  std::string_view why = {};
};

std::span<const KernelRow> KernelRows();    // by KernelId
std::span<const KernelRule> KernelRules();  // for each op in the order of preference
const KernelRow& RowOf(KernelId kernel);

// Whether the kernel can compute the request on any device on which it runs.
bool Computes(KernelId kernel, const KernelRequest& request);
// The same on this device: also its architecture, shared memory and, in deterministic mode, order.
bool Runs(KernelId kernel, const KernelRequest& request, const DeviceProperties& device);

// The first rule whose kernel runs and whose conditions hold; null when there is none. Takes about
// 0.1 µs, and allocates nothing.
const KernelRule* Choose(const KernelRequest& request, const DeviceProperties& device);

struct KernelRefusal {
  KernelId kernel = KernelId::kCublas;
  std::string reason = {};
};
struct ExplainedChoice {
  const KernelRule* chosen = nullptr;
  // The kernels of the rules before the chosen one, or of all rules; each once.
  std::vector<KernelRefusal> refused = {};
};
// As Choose, with the reasons.
ExplainedChoice Explain(const KernelRequest& request, const DeviceProperties& device);

// OK when some kernel computes the request. Else Unimplemented, which names the op, the
// architecture, what each kernel lacks, the nearest one first, and which setting would help, if any
// does.
Status CheckChoice(const KernelRequest& request, const DeviceProperties& device);

// "k ≥ 2 · n".
std::string ToString(const Condition& condition);

}  // namespace baton::cuda

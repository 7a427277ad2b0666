#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/cuda/table/kernel_table.h"

// Evaluates the rows and rules of the table. The checks exist once: a Failure names the first one
// that does not hold, and its text is made only for who wants to read it.
namespace baton::cuda {
namespace {

enum class Check : uint8_t {
  kNone,  // all hold
  kOp,
  kFamily,
  kOperands,
  kOrder,
  kRows,
  kFuses,
  kNeeds,
  kNotBoth,
  kShared,
  kShape,  // a condition of the row
  kMode,
  kRuleOperands,
  kRule,  // a condition of the rule
};

struct Failure {
  Check check = Check::kNone;
  size_t condition = 0;  // the first of the alternatives
};

bool Holds(const Condition& condition, const KernelRequest& request) {
  const int64_t left = condition.times * request[condition.left];
  const int64_t right = condition.number * request[condition.right];
  switch (condition.relation) {
    case Relation::kAtMost:
      return left <= right;
    case Relation::kAtLeast:
      return left >= right;
    case Relation::kEqual:
      return left == right;
    case Relation::kMultiple:
      return left % right == 0;
  }
  return false;
}

// Finds the first alternatives that all do not hold, and returns the index of their first
// condition; the number of conditions when there are none.
size_t FirstBroken(const Conditions& conditions, const KernelRequest& request) {
  const std::span<const Condition> all = conditions.all();
  size_t first = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (Holds(all[i], request)) {
      while (all[i].or_next) ++i;
      first = i + 1;
    } else if (!all[i].or_next) {
      return first;
    }
  }
  return all.size();
}

int64_t SharedBytes(const KernelRow& row, const KernelRequest& request) {
  return row.shared_bytes + row.shared_bytes_of_input * request[Property::kInputs];
}

// What the row itself lacks.
Failure CannotCompute(const KernelRow& row, const KernelRequest& request) {
  if ((row.ops & SetOf(request.op)) == 0) return {Check::kOp};
  if ((row.operands & SetOf(request.operands)) == 0) return {Check::kOperands};
  if (request[Property::kRows] < 1 || request[Property::kRows] > row.max_rows) {
    return {Check::kRows};
  }
  if ((request.fusions & ~row.fuses) != 0) return {Check::kFuses};
  if ((row.needs & ~request.fusions) != 0) return {Check::kNeeds};
  if (row.not_both != 0 && (request.fusions & row.not_both) == row.not_both) {
    return {Check::kNotBoth};
  }
  const size_t broken = FirstBroken(row.shape, request);
  return broken == row.shape.all().size() ? Failure{} : Failure{Check::kShape, broken};
}

Failure CannotRun(const KernelRow& row,
                  const KernelRequest& request,
                  const DeviceProperties& device) {
  if (!MayRun(row.family, device)) return {Check::kFamily};
  if (request.deterministic && row.order == OrderClass::kByRows) return {Check::kOrder};
  const Failure failure = CannotCompute(row, request);
  if (failure.check != Check::kNone) return failure;
  return SharedBytes(row, request) <= device.block_shared_bytes ? Failure{}
                                                                : Failure{Check::kShared};
}

Failure IsNotPreferred(const KernelRule& rule, const KernelRequest& request) {
  if (rule.mode != RuleMode::kAlways &&
      (rule.mode == RuleMode::kDeterministic) != request.deterministic) {
    return {Check::kMode};
  }
  if ((rule.operands & SetOf(request.operands)) == 0) return {Check::kRuleOperands};
  const size_t broken = FirstBroken(rule.when, request);
  return broken == rule.when.all().size() ? Failure{} : Failure{Check::kRule, broken};
}

Failure Fails(const KernelRule& rule,
              const KernelRequest& request,
              const DeviceProperties& device) {
  const Failure failure = CannotRun(RowOf(rule.kernel), request, device);
  return failure.check != Check::kNone ? failure : IsNotPreferred(rule, request);
}

std::string FusionsText(EnumSet fusions) {
  std::vector<std::string_view> names;
  for (unsigned i = 0; i < kFusions; ++i) {
    if ((fusions >> i & 1) != 0) names.push_back(Name(static_cast<Fusion>(i)));
  }
  return fmt::format("{}", fmt::join(names, " and "));
}

// "k ≥ 2 · n is false (k 4096, n 28672)", with all alternatives.
std::string BrokenText(const Conditions& conditions, size_t first, const KernelRequest& request) {
  const std::span<const Condition> all = conditions.all();
  std::vector<std::string> alternatives;
  std::vector<std::string> values;
  const auto value = [&](Property property) {
    std::string text = fmt::format("{} {}", Name(property), request[property]);
    if (property != Property::kOne && std::ranges::find(values, text) == values.end()) {
      values.push_back(std::move(text));
    }
  };
  for (size_t i = first; i < all.size(); ++i) {
    alternatives.push_back(ToString(all[i]));
    value(all[i].left);
    value(all[i].right);
    if (!all[i].or_next) break;
  }
  return fmt::format("{} is false ({})", fmt::join(alternatives, " or "), fmt::join(values, ", "));
}

std::string DeviceText(const DeviceProperties& device) {
  if (device.portable) return "engine.kernels is portable";
  if (device.code_architecture != device.architecture) {
    return fmt::format(
        "this is sm_{} with code for sm_{}", device.architecture, device.code_architecture);
  }
  return fmt::format("this is sm_{}", device.architecture);
}

// How far a kernel is from computing a request: what a size lacks is nearer than another
// architecture, and that is nearer than other types.
int Distance(const KernelRow& row, const KernelRequest& request, const DeviceProperties& device) {
  const int of_device = MayRun(row.family, device) ? 0 : 2 + static_cast<int>(row.family);
  const Check check = CannotCompute(row, request).check;
  return of_device + (check == Check::kNone ? 0 : check == Check::kOperands ? 10 : 1);
}

// The setting with which a kernel would compute a request that none computes; empty when there is
// none.
std::string WhatWouldHelp(const KernelRequest& request, const DeviceProperties& device) {
  const auto helps = [](const KernelRequest& other, const DeviceProperties& elsewhere) {
    return Choose(other, elsewhere) != nullptr;
  };
  KernelRequest bf16 = request;
  bf16.operands = Operands::kBf16;
  bf16[Property::kNumberBytes] = 2;
  if (request.operands != Operands::kF32 && helps(bf16, device)) return "; in bf16 one does";
  DeviceProperties every = device;
  every.portable = false;
  if (helps(request, every)) return "; with engine.kernels: auto one does";
  every.code_architecture = device.architecture;
  if (helps(request, every)) {
    return fmt::format("; a CUDA backend with code for sm_{} has one", device.architecture);
  }
  KernelRequest fast = request;
  fast.deterministic = false;
  return helps(fast, device) ? "; with engine.deterministic: false one does" : "";
}

std::string ToText(const Failure& failure,
                   const KernelRule& rule,
                   const KernelRequest& request,
                   const DeviceProperties& device) {
  const KernelRow& row = RowOf(rule.kernel);
  switch (failure.check) {
    case Check::kNone:
      return "";
    case Check::kOp:
      return fmt::format("does not compute {}", Name(request.op));
    case Check::kFamily:
      return fmt::format("needs {}, and {}", Needs(row.family), DeviceText(device));
    case Check::kOperands:
    case Check::kRuleOperands:
      return fmt::format("is not for {}", Name(request.operands));
    case Check::kOrder:
      return "the order of its sums depends on the number of rows (engine.deterministic)";
    case Check::kRows:
      return row.max_rows == 1 ? "computes one row alone"
                               : fmt::format("computes at most {} rows", row.max_rows);
    case Check::kFuses:
      return fmt::format("does not fuse {}", FusionsText(request.fusions & ~row.fuses));
    case Check::kNeeds:
      return fmt::format("is only for {}", FusionsText(row.needs));
    case Check::kNotBoth:
      return fmt::format("does not fuse {} together", FusionsText(row.not_both));
    case Check::kShared:
      return fmt::format("needs {} bytes of shared memory; a thread block has {}",
                         SharedBytes(row, request),
                         device.block_shared_bytes);
    case Check::kShape:
      return BrokenText(row.shape, failure.condition, request);
    case Check::kMode:
      return request.deterministic ? "is slower in deterministic mode"
                                   : "is for deterministic mode";
    case Check::kRule:
      return "slower here: " + BrokenText(rule.when, failure.condition, request);
  }
  return "";
}

}  // namespace

std::string_view Name(OrderClass order) {
  switch (order) {
    case OrderClass::kByRows:
      return "depends on the number of rows";
    case OrderClass::kAscending:
      return "ascending k";
    case OrderClass::kAlgorithm:
      return "ascending k, as the first use has proven";
    case OrderClass::kFixedSplits:
      return "fixed splits";
    case OrderClass::kRowAlone:
      return "each row alone";
  }
  return "";
}

std::string ToString(const Condition& condition) {
  const auto product = [](int64_t number, Property property) {
    if (property == Property::kOne) return fmt::format("{}", number);
    if (number == 1) return std::string(Name(property));
    return fmt::format("{} · {}", number, Name(property));
  };
  constexpr std::array<std::string_view, 4> kSigns = {"≤", "≥", "=", "a multiple of"};
  return fmt::format("{} {} {}",
                     product(condition.times, condition.left),
                     kSigns[static_cast<size_t>(condition.relation)],
                     product(condition.number, condition.right));
}

bool Computes(KernelId kernel, const KernelRequest& request) {
  return CannotCompute(RowOf(kernel), request).check == Check::kNone;
}

bool Runs(KernelId kernel, const KernelRequest& request, const DeviceProperties& device) {
  return CannotRun(RowOf(kernel), request, device).check == Check::kNone;
}

const KernelRule* Choose(const KernelRequest& request, const DeviceProperties& device) {
  for (const KernelRule& rule : KernelRules()) {
    if (rule.op == request.op && Fails(rule, request, device).check == Check::kNone) return &rule;
  }
  return nullptr;
}

ExplainedChoice Explain(const KernelRequest& request, const DeviceProperties& device) {
  ExplainedChoice choice;
  for (const KernelRule& rule : KernelRules()) {
    if (rule.op != request.op) continue;
    const Failure failure = Fails(rule, request, device);
    if (failure.check == Check::kNone) {
      choice.chosen = &rule;
      std::erase_if(choice.refused,
                    [&](const KernelRefusal& one) { return one.kernel == rule.kernel; });
      return choice;
    }
    // A rule for the other mode or for other types says nothing about its kernel.
    const bool other = failure.check == Check::kMode || failure.check == Check::kRuleOperands;
    const auto found = std::ranges::find(choice.refused, rule.kernel, &KernelRefusal::kernel);
    std::string reason = ToText(failure, rule, request, device);
    if (found == choice.refused.end()) {
      if (!other || rule.mode == RuleMode::kDeterministic) {
        choice.refused.push_back({rule.kernel, std::move(reason)});
      }
    } else if (failure.check == Check::kRule && found->reason != reason) {
      found->reason += "; " + reason;
    }
  }
  return choice;
}

Status CheckChoice(const KernelRequest& request, const DeviceProperties& device) {
  if (Choose(request, device) != nullptr) return OkStatus();
  std::vector<KernelRefusal> refused = Explain(request, device).refused;
  // Later rules are for more shapes.
  std::ranges::reverse(refused);
  std::ranges::stable_sort(refused, {}, [&](const KernelRefusal& refusal) {
    return Distance(RowOf(refusal.kernel), request, device);
  });
  constexpr size_t kNearest = 3;
  refused.resize(std::min(refused.size(), kNearest));
  std::vector<std::string> reasons;
  for (const KernelRefusal& refusal : refused) {
    reasons.push_back(fmt::format("{}: {}", RowOf(refusal.kernel).name, refusal.reason));
  }
  return MakeStatus(StatusCode::kUnimplemented,
                    "no kernel computes the {} of {} on sm_{}; the nearest are {}{}",
                    Name(request.op),
                    Name(request.operands),
                    device.architecture,
                    fmt::join(reasons, "; "),
                    WhatWouldHelp(request, device));
}

}  // namespace baton::cuda

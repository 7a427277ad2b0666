#include "common/kernel_report/kernel_report.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "common/base/overloaded.h"
#include "common/kernel_report/shape_weights.h"
#include "common/model/decoder_graphs.h"
#include "common/model/rank_plan.h"
#include "kernels/cuda/table/experts_request.h"
#include "kernels/cuda/table/gemm_request.h"
#include "kernels/cuda/table/kernel_table.h"
#include "kernels/cuda/table/latent_request.h"
#include "kernels/cuda/table/recurrent_request.h"

namespace baton {
namespace {

using cuda::GemmForm;
using cuda::KernelRequest;
using cuda::KernelRule;

// The ways to compute an op with a number of rows, in the order in which a step tries them.
using FormsOfRows = std::function<std::vector<GemmForm>(int64_t rows)>;

struct Chosen {
  const KernelRule* rule = nullptr;
  size_t form = 0;
  bool operator==(const Chosen&) const = default;
};

class ReportBuilder {
 public:
  ReportBuilder(const cuda::DecodeLimits& limits, const KernelReportOptions& options)
      : limits_(limits), options_(options) {}

  void Add(const graph::Op& op, const graph::StepGraph& graph) {
    std::visit(Overloaded{[&](const graph::MatMulOp& o) {
                            AddGemm(o.weight, o.bias, false, graph.value(o.out));
                          },
                          [&](const graph::GatedMatMulOp& o) {
                            AddGemm(o.gate_up, o.bias, true, graph.value(o.out));
                          },
                          [&](const graph::AttentionOp& o) { AddAttention(o.args); },
                          [&](const graph::AttendLatentsOp& o) { AddLatents(o.args.shape); },
                          [&](const graph::RecurrentOp& o) { AddRecurrent(o.args.shape); },
                          [&](const graph::ScanOp& o) { AddRecurrent(o.args.shape); },
                          [&](const graph::ExpertsOp& o) { AddExperts(o.args); },
                          [](const auto&) {}},
               op);
  }

  std::vector<KernelUse> Take() { return std::move(uses_); }

 private:
  void AddGemm(const Matrix* matrix, const Vector* bias, bool silu_mul, const graph::Value& out) {
    const auto& weight = static_cast<const ShapeMatrix&>(*matrix);
    const cuda::ModelGemm gemm = {.n = weight.rows(),
                                  .k = weight.cols(),
                                  .fp8 = weight.dtype() == DType::kFp8,
                                  .bias = bias != nullptr,
                                  .silu_mul = silu_mul,
                                  .f32_out = out.dtype == DType::kF32};
    AddOp(fmt::format("{} of {}, {} × {}{}",
                      silu_mul ? "gated GEMM" : "GEMM",
                      out.name,
                      gemm.n,
                      gemm.k,
                      gemm.bias ? ", with a bias" : ""),
          std::string(Name(weight.dtype())),
          [this, gemm](int64_t rows) { return cuda::FormsOf(gemm, rows, options_.deterministic); });
  }

  KvView KvOf(const AttentionArgs& args) const {
    KvView kv;
    kv.dtype = options_.kv;
    kv.kv_heads = args.heads.kv_heads;
    kv.head_dim = args.heads.head_dim;
    kv.block_tokens = options_.block_tokens;
    kv.head_stride = int64_t{options_.block_tokens} * args.heads.head_dim *
                     static_cast<int64_t>(ShapeOf(options_.kv).bytes);
    kv.block_stride = 2 * kv.head_stride * kv.kv_heads;
    return kv;
  }

  void AddAttention(const AttentionArgs& args) {
    const cuda::AttentionHeads heads = {.q_heads = args.heads.q_heads,
                                        .kv_heads = args.heads.kv_heads,
                                        .head_dim = args.heads.head_dim,
                                        .window = args.window,
                                        .soft_cap = args.cap > 0,
                                        .sinks = args.sinks != nullptr,
                                        .chunks = args.chunk > 0};
    const KvView kv = KvOf(args);
    const std::string shape =
        fmt::format("{} heads over {} of {}{}",
                    heads.q_heads,
                    heads.kv_heads,
                    heads.head_dim,
                    heads.window > 0 ? fmt::format(", window {}", heads.window) : "");
    const std::string types = fmt::format("KV in {}", Name(kv.dtype));
    const int32_t visible =
        heads.window > 0 ? std::min(heads.window, options_.context) : options_.context;
    AddOp(fmt::format("attention, decoding rows of {} positions, {}", visible, shape),
          types,
          [this, heads, kv, visible](int64_t rows) {
            const auto count = static_cast<int32_t>(rows);
            return OneForm(cuda::SingleRowsRequest(
                heads, kv, limits_, {count, count, visible, rows * visible}, Deterministic()));
          });
    AddOp(fmt::format("attention, rows of one prompt chunk, {}", shape),
          types,
          [this, heads, kv](int64_t rows) {
            if (rows <= cuda::MaxFewRows(heads, Deterministic())) {
              return OneForm(cuda::FewRowsRequest(heads, kv, Deterministic()));
            }
            return OneForm(cuda::ChunksRequest(heads,
                                               kv,
                                               limits_,
                                               {.count = 1,
                                                .longest = static_cast<int32_t>(rows),
                                                .tiles = cuda::Flash3Tiles(rows, heads.head_dim)},
                                               Deterministic()));
          });
  }

  void AddLatents(const LatentShape& shape) {
    AddOp(fmt::format(
              "attention to latents of {} + {}, {} heads", shape.rank, shape.rope_dim, shape.heads),
          fmt::format("KV in {}", Name(options_.kv)),
          [this, shape](int64_t) {
            return OneForm(
                cuda::LatentRequest(shape, options_.kv, options_.block_tokens, Deterministic()));
          });
    AddOp(
        fmt::format("GEMMs of {} heads, {} × {} and {} × {}",
                    shape.heads,
                    shape.rank,
                    shape.nope_dim,
                    shape.value_dim,
                    shape.rank),
        "bf16",
        [this, shape](int64_t) { return OneForm(cuda::HeadGemmRequest(shape, Deterministic())); });
  }

  void AddRecurrent(const RecurrentShape& shape) {
    AddOp(
        fmt::format("recurrent layer of {} heads, {} × {}",
                    shape.value_heads,
                    shape.key_dim,
                    shape.value_dim),
        "states in f32",
        [this, shape](int64_t) { return OneForm(cuda::RecurrentRequest(shape, Deterministic())); });
    if (shape.rule == RecurrentRule::kSelectiveScan) return;
    AddOp(fmt::format("decoding rows of a recurrent layer of {} heads, {} × {}",
                      shape.value_heads,
                      shape.key_dim,
                      shape.value_dim),
          "states in f32",
          [this, shape](int64_t) {
            // Blocks of an arena are aligned.
            return OneForm(
                cuda::RecurrentRowsRequest(shape, cuda::kDecodeAlignment, Deterministic()));
          });
    AddOp(fmt::format("prompt chunks of a recurrent layer of {} heads, {} × {}",
                      shape.value_heads,
                      shape.key_dim,
                      shape.value_dim),
          "states in f32",
          [this, shape](int64_t) {
            return OneForm(cuda::RecurrentChunksRequest(shape, Deterministic()));
          });
  }

  void AddExperts(const ExpertArgs& args) {
    const auto& gate_up = static_cast<const ShapeMatrix&>(*args.gate_up[0]);
    const auto& down = static_cast<const ShapeMatrix&>(*args.down[0]);
    const cuda::ExpertShape shape = {.experts = args.router->rows(),
                                     .experts_per_token = args.experts_per_token,
                                     .hidden = args.router->cols(),
                                     .width = down.cols(),
                                     .gate_up = gate_up.dtype(),
                                     .down = down.dtype(),
                                     .bias = !args.gate_up_bias.empty(),
                                     .clamped_gate = args.gate.limit > 0,
                                     .ungated = args.gate.ungated,
                                     .weighted_inputs = args.routing.weighted_inputs};
    AddOp(fmt::format("scores of {} experts", shape.experts), "bf16", [this](int64_t rows) {
      return OneForm(cuda::ExpertScoresRequest(rows, Deterministic()));
    });
    AddOp(fmt::format("{} of {} experts of {} × {}",
                      shape.experts_per_token,
                      shape.experts,
                      shape.width,
                      shape.hidden),
          std::string(Name(gate_up.dtype())),
          [this, shape](int64_t rows) {
            return OneForm(cuda::ExpertsRequest(shape, rows, Deterministic()));
          });
  }

  bool Deterministic() const { return options_.deterministic; }

  static std::vector<GemmForm> OneForm(const KernelRequest& request) { return {{request, ""}}; }

  Chosen Choose(const std::vector<GemmForm>& forms) const {
    for (size_t i = 0; i < forms.size(); ++i) {
      if (const KernelRule* const rule = cuda::Choose(forms[i].request, limits_.device)) {
        return {rule, i};
      }
    }
    return {nullptr, forms.size()};
  }

  // A use for each range of rows with the same choice.
  void AddOp(const std::string& op, const std::string& types, const FormsOfRows& forms) {
    if (!known_.insert(op + types).second) return;
    std::optional<Chosen> last;
    for (int64_t rows = 1; rows <= options_.max_rows; ++rows) {
      const std::vector<GemmForm> all = forms(rows);
      const Chosen chosen = Choose(all);
      if (last != chosen) uses_.push_back(UseOf(op, types, rows, all, chosen));
      uses_.back().last_row = rows;
      last = chosen;
    }
  }

  KernelUse UseOf(const std::string& op,
                  const std::string& types,
                  int64_t rows,
                  const std::vector<GemmForm>& forms,
                  const Chosen& chosen) const {
    KernelUse use;
    use.op = op;
    use.types = types;
    use.first_row = rows;
    if (chosen.rule != nullptr) {
      const cuda::KernelRow& row = cuda::RowOf(chosen.rule->kernel);
      use.kernel = row.name;
      use.why = chosen.rule->why;
      use.others = forms[chosen.form].others;
      if (row.order != cuda::OrderClass::kByRows) use.order = Name(row.order);
    }
    for (size_t i = 0; i < forms.size() && i <= chosen.form; ++i) {
      for (cuda::KernelRefusal& refusal : cuda::Explain(forms[i].request, limits_.device).refused) {
        const std::string name(cuda::RowOf(refusal.kernel).name);
        const auto found =
            std::ranges::find(use.refused, name, [](const auto& r) { return r.first; });
        if (name == use.kernel) continue;
        if (found == use.refused.end()) {
          use.refused.emplace_back(name, std::move(refusal.reason));
        } else {
          found->second = std::move(refusal.reason);  // of the form that came nearest
        }
      }
    }
    return use;
  }

  const cuda::DecodeLimits& limits_;
  const KernelReportOptions& options_;
  std::set<std::string> known_;
  std::vector<KernelUse> uses_;
};

}  // namespace

std::vector<KernelUse> ReportKernels(const ModelSpec& spec,
                                     const cuda::DecodeLimits& limits,
                                     const KernelReportOptions& options) {
  const DecoderWeights weights = ShapeWeights(spec, options.fp8_weights);
  const RankPlan plan = MakeRankPlan(spec, {}, ExchangeMode::kGather).value();
  const DecoderGraphs graphs = BuildDecoderGraphs(spec, plan, weights, DType::kBF16);
  ReportBuilder builder(limits, options);
  const graph::StepGraph& stage = graphs[StepKindOf(1, RowResults::kLogits)].stage;
  for (const graph::Op& op : stage.ops()) builder.Add(op, stage);
  return builder.Take();
}

Status CheckKernels(std::span<const KernelUse> uses, const cuda::DeviceProperties& device) {
  const auto lacking =
      std::ranges::find_if(uses, [](const auto& use) { return use.kernel.empty(); });
  if (lacking == uses.end()) return OkStatus();
  std::vector<std::string> reasons;
  for (const auto& [kernel, reason] : lacking->refused) {
    reasons.push_back(fmt::format("{}: {}", kernel, reason));
  }
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "no kernel computes {} in {} on sm_{} ({})",
                    lacking->op,
                    lacking->types,
                    device.architecture,
                    fmt::join(reasons, "; "));
}

KernelUse ReportCpuKernels(CpuIsa chosen, int64_t max_rows) {
  KernelUse use = {.op = "every op",
                   .types = "those of the model's file",
                   .last_row = max_rows,
                   .kernel = fmt::format("cpu/kernels_{}", Name(chosen)),
                   .order = "the same bits with every instruction set"};
  use.why = chosen == BestCpuIsa() ? "the best instruction set that this processor and build have"
                                   : "engine.cpu_isa names it";
  for (const CpuIsa isa : kCpuIsas) {
    if (isa == chosen) continue;
    use.refused.emplace_back(fmt::format("cpu/kernels_{}", Name(isa)),
                             Supported(isa) ? fmt::format("{} is chosen", Name(chosen))
                                            : "this processor or build does not have it");
  }
  return use;
}

nlohmann::json ToJson(const KernelUse& use) {
  nlohmann::json refused = nlohmann::json::array();
  for (const auto& [kernel, reason] : use.refused) {
    refused.push_back({{"kernel", kernel}, {"reason", reason}});
  }
  return {{"op", use.op},
          {"types", use.types},
          {"rows", {use.first_row, use.last_row}},
          {"kernel", use.kernel},
          {"why", use.why},
          {"order", use.order},
          {"others", use.others},
          {"refused", refused}};
}

}  // namespace baton

#include "common/model/decoder.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/model/activations.h"
#include "common/model/decoder_graphs.h"
#include "common/model/decoder_weights.h"
#include "common/model/fingerprint.h"
#include "common/model/op_variants.h"
#include "kernels/graph/run_graph.h"

namespace baton {

class Decoder::Impl {
 public:
  Impl(const ModelSpec& spec, const DecoderLimits& limits, Ops& ops)
      : spec_(spec), limits_(limits), ops_(ops), exchange_(ops.exchange()) {}

  Status Load(const WeightSource& source, const LoadProgress& progress) {
    BATON_RETURN_IF_ERROR(spec_.Validate("model spec"));
    if (limits_.max_rows < 1 || limits_.max_logit_rows < 1) {
      return InvalidArgument("decoder limits: max_rows {} and max_logit_rows {} must be at least 1",
                             limits_.max_rows,
                             limits_.max_logit_rows);
    }
    if (limits_.fp8_kv && !ops_.supports_fp8_kv()) {
      return InvalidArgument(
          "an fp8 KV cache needs a GPU of sm_89 or newer, and a CUDA backend with code for it; "
          "kv_type must be another type on {}",
          ops_.device().name());
    }
    const RankPlace place = exchange_ == nullptr ? RankPlace{} : exchange_->place();
    const ExchangeMode mode = exchange_ == nullptr ? ExchangeMode::kGather : exchange_->mode();
    BATON_ASSIGN_OR_RETURN(plan_, MakeRankPlan(spec_, place, mode, limits_.balance));
    const Status runs = ops_.CheckModel(ModelShapeOf(spec_, plan_, limits_.fp8_kv));
    if (!runs.ok())
      return Annotate(runs, fmt::format("the model cannot run on {}", ops_.device().name()));
    fingerprint_ = Fingerprint(spec_, source);
    BATON_ASSIGN_OR_RETURN(weights_,
                           LoadDecoderWeights(spec_,
                                              source,
                                              ops_,
                                              {.fp8_kv = limits_.fp8_kv,
                                               .bf16 = limits_.bf16,
                                               .slice = plan_.slice,
                                               .hashed = {place.tensor_rank, place.tensor_parallel},
                                               .progress = progress}));
    graphs_ = BuildDecoderGraphs(spec_, plan_, weights_, ops_.activation_dtype());
    BATON_ASSIGN_OR_RETURN(
        activations_, Activations::Place(graphs_, limits_.max_rows, limits_.max_logit_rows, ops_));
    return OkStatus();
  }

  void ForwardStage(const StepInput& input, const LayerHook& hook) {
    const auto rows = static_cast<int64_t>(input.tokens.size());
    const auto wanted = static_cast<int64_t>(input.logit_rows.size());
    BATON_CHECK(rows >= 1 && rows <= limits_.max_rows, "{} rows in a step", rows);
    const int32_t most = input.results == RowResults::kStates
                             ? std::max(limits_.max_rows, limits_.max_logit_rows)
                             : limits_.max_logit_rows;
    BATON_CHECK(wanted <= most, "{} logit rows in a step", wanted);
    const size_t kind = StepKindOf(wanted, input.results);
    graph::StepRun run = RunOf(activations_.of(kind).stage, wanted);
    run.rows = rows;
    run.kv_written = hook;
    graph::RunGraph(graphs_[kind].stage, run, ops_);
  }

  StepResults TakeResults(int64_t rows, RowResults wanted) {
    if (!plan_.place.leader()) return {};
    const size_t kind = StepKindOf(rows, wanted);
    const Activations::Tensors& tensors = activations_.of(kind);
    const graph::StepRun answer = RunOf(tensors.answer, rows);
    graph::RunGraph(graphs_[kind].answer, answer, ops_);
    if (rows == 0) return {};
    const bool own = plan_.last_stage();
    const graph::StepGraph& from = own ? graphs_[kind].stage : graphs_[kind].answer;
    const graph::StepRun run = own ? RunOf(tensors.stage, rows) : answer;
    const auto tensor = [&](graph::ValueId id) { return graph::TensorOf(from, id, run); };
    StepResults results;
    if (wanted != RowResults::kStates) results.logits = tensor(from.results().front());
    if (wanted != RowResults::kLogits) results.states = tensor(from.results().back());
    return results;
  }

  const ModelSpec spec_;
  const DecoderLimits limits_;
  Ops& ops_;
  RankPlan plan_;
  Hash128 fingerprint_;
  DecoderWeights weights_;

 private:
  graph::StepRun RunOf(std::span<const Tensor> values, int64_t logit_rows) const {
    return {.values = values, .logit_rows = logit_rows, .tensor_rank = plan_.place.tensor_rank};
  }

  Exchange* const exchange_;  // null: this rank is the only one
  DecoderGraphs graphs_;
  Activations activations_;
};

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

StatusOr<std::unique_ptr<Decoder>> Decoder::Load(const ModelSpec& spec,
                                                 const WeightSource& weights,
                                                 Ops& ops,
                                                 const DecoderLimits& limits,
                                                 const LoadProgress& progress) {
  auto impl = std::make_unique<Impl>(spec, limits, ops);
  BATON_RETURN_IF_ERROR(impl->Load(weights, progress));
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

void Decoder::ForwardStage(const StepInput& input, const LayerHook& hook) {
  impl_->ForwardStage(input, hook);
}

StepResults Decoder::TakeResults(size_t logit_rows, RowResults wanted) {
  return impl_->TakeResults(static_cast<int64_t>(logit_rows), wanted);
}

const ModelSpec& Decoder::spec() const {
  return impl_->spec_;
}
const DecoderLimits& Decoder::limits() const {
  return impl_->limits_;
}
Ops& Decoder::ops() const {
  return impl_->ops_;
}
const RankPlan& Decoder::plan() const {
  return impl_->plan_;
}
const Hash128& Decoder::fingerprint() const {
  return impl_->fingerprint_;
}
const Hash128& Decoder::weights_hash() const {
  return impl_->weights_.hash;
}
size_t Decoder::weight_bytes() const {
  return impl_->weights_.bytes;
}

}  // namespace baton

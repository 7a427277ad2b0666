#include "common/engine/decoder_runner.h"

#include <algorithm>

namespace baton {
namespace {

ModelTraits TraitsOf(const Decoder& decoder) {
  const ModelSpec& spec = decoder.spec();
  return {.context_length = spec.context_length,
          .vocabulary = spec.vocab,
          .max_rows = decoder.limits().max_rows,
          .max_logit_rows = decoder.limits().max_logit_rows,
          .layers = spec.layer_count(),
          .kv_heads = spec.kv_heads,
          .head_dim = spec.head_dim,
          .k_dim_major = decoder.ops().k_dim_major(),
          .fingerprint = decoder.fingerprint()};
}

}  // namespace

DecoderRunner::DecoderRunner(Decoder& decoder) : decoder_(decoder), traits_(TraitsOf(decoder)) {}

Status DecoderRunner::Run(const StepInput& input,
                          const KvView& kv,
                          std::span<const SamplingRow> sampling,
                          std::span<SampledToken> out,
                          const LayerWatch& watch) {
  Ops& ops = decoder_.ops();
  BATON_RETURN_IF_ERROR(ops.BeginStep(input, kv));
  LayerHook hook;
  if (!watch.marks.empty()) {
    hook = [&](int32_t layer) {
      const int32_t layers = layer + 1;
      if (!std::ranges::binary_search(watch.marks, layers)) return;
      ops.NotifyWhenDone([&watch, layers] { watch.reached(layers); });
    };
  }
  const Tensor logits = decoder_.Forward(input, hook);
  if (!sampling.empty()) ops.Sample(logits, sampling, out);
  return ops.EndStep();
}

Status DecoderRunner::CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) {
  return decoder_.ops().CopyBlocks(kv, copies);
}

}  // namespace baton

#include "common/worker/model_host.h"

#include <algorithm>

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/engine/request_check.h"
#include "common/log/log.h"
#include "common/model/describe_model.h"
#include "common/model/fingerprint.h"
#include "common/model/tokenizer_source.h"
#include "kernels/thread_pool.h"

namespace baton {
namespace {

const Logger kLog("model");

std::string DescribeDevice(Backend& backend, const BackendOptions& options) {
  const Device& device = backend.device();
  if (options.device == kCpu) return fmt::format("{}, {} threads", device.name(), options.threads);
  return fmt::format("{}{}{}{}, {:.1f} GiB free",
                     device.name(),
                     options.deterministic ? ", deterministic" : "",
                     options.fp8_weights ? ", FP8 weights" : "",
                     options.portable_kernels ? ", portable kernels" : "",
                     static_cast<double>(device.free_bytes()) / (1 << 30));
}

// Lets a tied model run with the head of its files where it differs, and says so.
void UseOwnHead(OpenedModel& model, const std::string& name) {
  if (!FindOwnHead(model)) return;
  kLog.Warning(
      "model {}: tie_word_embeddings is true, but the files have an lm_head.weight that differs "
      "from the embedding; lm_head.weight is used",
      name);
}

}  // namespace

StatusOr<std::unique_ptr<ModelHost>> ModelHost::Open(const ModelHostOptions& options) {
  std::unique_ptr<ModelHost> host(new ModelHost());
  BATON_ASSIGN_OR_RETURN(OpenedModel model, OpenModel(options.path, options.open));
  if (options.context_length > model.spec.context_length) {
    return InvalidArgument("engine.context_length is {}; the model of '{}' has at most {}",
                           options.context_length,
                           options.path,
                           model.spec.context_length);
  }
  if (options.context_length > 0) model.spec.context_length = options.context_length;
  host->shape_ = ShapeHash(model.spec);
  int32_t token_ids = model.spec.vocab;
  if (const auto tokenizer = LoadTokenizerSpec(options.path); tokenizer.ok()) {
    host->tokenizer_ = TokenizerHash(*tokenizer);
    BATON_ASSIGN_OR_RETURN(token_ids, CountTokenIds(options.path, model.spec, *tokenizer));
  }
  host->name_ = options.name.empty() ? model.name : options.name;

  const SteadyClock clock;
  const Time start = clock.Now();
  BackendOptions backend = options.backend;
  if (backend.threads == 0) {
    const int share = std::max(1, AllowedProcessors() / options.ranks_on_host);
    backend.threads = std::min(share, ThreadPool::kMaxThreads);
  }
  auto opened = OpenBackend(backend);
  if (!opened.ok()) {
    return Annotate(opened.status(), fmt::format("engine.device '{}'", backend.device));
  }
  host->backend_ = *std::move(opened);
  const std::string device = DescribeDevice(*host->backend_, backend);
  kLog.Info("{} opened in {:.1f} s", device, ToSeconds(clock.Now() - start));
  if (const Exchange* exchange = host->backend_->ops().exchange(); exchange != nullptr) {
    const RankPlace& place = exchange->place();
    kLog.Info("tensor rank {} of {}, stage {} of {}; ranks exchange {}",
              place.tensor_rank,
              place.tensor_parallel,
              place.stage,
              place.pipeline_parallel,
              exchange->description());
  }

  const Time load_start = clock.Now();
  UseOwnHead(model, host->name_);
  Time last_line = load_start;
  const LoadProgress progress = [&](double share) {
    if (clock.Now() - last_line < std::chrono::seconds(2)) return;
    last_line = clock.Now();
    kLog.Info("loading {}: {:.0f} %", options.path, share * 100);
  };
  const DecoderLimits limits{options.max_step_tokens,
                             options.max_sequences + kScoredRows,
                             options.fp8_kv,
                             options.bf16,
                             options.balance};
  BATON_ASSIGN_OR_RETURN(
      host->decoder_,
      Decoder::Load(model.spec, *model.weights, host->backend_->ops(), limits, progress));
  // A rank of a group leaves the tensors of the other ranks unread.
  if (host->decoder_->plan().place == RankPlace{}) {
    for (const std::string& line : DescribeUnread(model.spec, *model.weights)) {
      kLog.Warning("model {}: {}", host->name_, line);
    }
  }
  host->traits_ = TraitsOf(*host->decoder_, token_ids);
  const double seconds = ToSeconds(clock.Now() - load_start);
  const auto bytes = static_cast<double>(host->decoder_->weight_bytes());
  kLog.Info("model {}: {} layers, {:.0f} MiB of weights on {}, loaded in {:.1f} s, {:.2f} GB/s",
            host->name_,
            model.spec.layer_count(),
            bytes / (1 << 20),
            device,
            seconds,
            bytes / 1e9 / seconds);
  return host;
}

StatusOr<std::unique_ptr<DecoderExecutor>> ModelHost::MakeExecutor(
    DecoderExecutor::Options options) {
  options.token_ids = traits_.vocabulary;
  return DecoderExecutor::Create(*decoder_, options);
}

}  // namespace baton

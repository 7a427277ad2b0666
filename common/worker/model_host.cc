#include "common/worker/model_host.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "common/base/clock.h"
#include "common/log/log.h"

namespace baton {
namespace {

const Logger& Log() {
  static const Logger logger("model");
  return logger;
}

// Processors this process may run on: less than the machine's in a container or under taskset.
int AllowedProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
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
  host->name_ = options.name.empty() ? model.name : options.name;
  CpuOptions cpu;
  cpu.threads = options.threads > 0 ? options.threads : AllowedProcessors();
  BATON_ASSIGN_OR_RETURN(host->ops_, MakeCpuOps(host->device_, cpu));

  const SteadyClock clock;
  const Time start = clock.Now();
  Time last_line = start;
  const LoadProgress progress = [&](double share) {
    if (clock.Now() - last_line < std::chrono::seconds(2)) return;
    last_line = clock.Now();
    Log().Info("loading {}: {:.0f} %", options.path, share * 100);
  };
  const DecoderLimits limits{options.max_step_tokens, options.max_sequences};
  BATON_ASSIGN_OR_RETURN(host->decoder_,
                         Decoder::Load(model.spec, *model.weights, *host->ops_, limits, progress));
  host->runner_ = std::make_unique<DecoderRunner>(*host->decoder_);
  Log().Info("model {}: {} layers, {:.0f} MiB of weights, {} threads, loaded in {:.1f} s",
             host->name_,
             model.spec.layer_count(),
             static_cast<double>(host->decoder_->weight_bytes()) / (1 << 20),
             cpu.threads,
             ToSeconds(clock.Now() - start));
  return host;
}

}  // namespace baton

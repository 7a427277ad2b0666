#include "common/worker/config_wire.h"

#include "common/config/home.h"

namespace baton {
namespace {

constexpr int32_t kCpuStepTokens = 512;
// The GEMMs of a prompt reach their full rate at this many tokens.
constexpr int32_t kGpuPrefillStepTokens = 8192;
// Decoding sequences wait for the prompt chunk in their step: about 45 ms with an 8B model on an
// H200.
constexpr int32_t kGpuStepTokens = 2048;
// Far above the longest real step: 8,192 tokens of a large model with a long context take seconds.
constexpr Duration kGpuStepLimit = std::chrono::seconds(60);
constexpr size_t kCpuKvBytes = size_t{512} << 20;
// EngineOptions::full_step_tokens of a prefill worker: its steps hold prompts only, so a longer
// step would only delay the prompts in it.
constexpr int32_t kFullPrefillStepTokens = 2048;

bool OnGpu(const config::EngineConfig& engine) {
  return DeviceOf(engine, 0) != kCpu;
}

int32_t StepTokensOf(const config::EngineConfig& engine, WorkerKind kind) {
  if (engine.max_step_tokens() > 0) return engine.max_step_tokens();
  if (!OnGpu(engine)) return kCpuStepTokens;
  return kind == WorkerKind::kPrefill ? kGpuPrefillStepTokens : kGpuStepTokens;
}

DType KvTypeOf(const config::EngineConfig& engine) {
  switch (engine.kv_type()) {
    case config::EngineConfig::F16:
      return DType::kF16;
    case config::EngineConfig::BF16:
      return DType::kBF16;
    case config::EngineConfig::F32:
      return DType::kF32;
    case config::EngineConfig::FP8:
      return DType::kFp8;
    default:
      return OnGpu(engine) ? DType::kBF16 : DType::kF16;
  }
}

SchedulingPolicy PolicyOf(const config::EngineConfig& engine) {
  switch (engine.policy()) {
    case config::EngineConfig::PRIORITY:
      return SchedulingPolicy::kPriority;
    case config::EngineConfig::SHORTEST_PREFILL:
      return SchedulingPolicy::kShortestPrefill;
    case config::EngineConfig::DEADLINE:
      return SchedulingPolicy::kDeadline;
    default:
      return SchedulingPolicy::kFcfs;
  }
}

}  // namespace

std::string Name(WorkerKind kind) {
  switch (kind) {
    case WorkerKind::kPrefill:
      return "prefill";
    case WorkerKind::kDecode:
      return "decode";
    case WorkerKind::kUnified:
      return "unified";
  }
  return "worker";
}

std::string KernelCacheOf(const config::EngineConfig& engine) {
  if (engine.kernel_cache() == "off") return "";
  return engine.kernel_cache().empty() ? HomeFolder() + "/kernels" : engine.kernel_cache();
}

std::string DeviceOf(const config::EngineConfig& engine, int rank) {
  return engine.devices().empty() ? engine.device() : engine.devices(rank);
}

bool IsDeterministic(const config::EngineConfig& engine, WorkerKind kind) {
  if (!OnGpu(engine)) return true;
  if (engine.deterministic() != config::Determinism::AUTO) {
    return engine.deterministic() == config::Determinism::TRUE;
  }
  // Where KV changes hands, tokens must not depend on which worker decodes.
  return kind != WorkerKind::kUnified;
}

ModelHostOptions ModelOptionsOf(const config::WorkerConfig& config, WorkerKind kind) {
  const config::EngineConfig& engine = config.engine();
  ModelHostOptions options;
  options.path = config.model().path();
  options.name = config.model().name();
  if (config.model().load_format() == config::ModelConfig::DUMMY) {
    options.open.format = LoadFormat::kDummy;
  }
  options.open.dummy_seed = config.model().dummy_seed();
  options.backend.device = DeviceOf(engine, 0);
  options.backend.threads = engine.threads();
  options.backend.cpu_isa = engine.cpu_isa();
  options.backend.deterministic = OnGpu(engine) && IsDeterministic(engine, kind);
  options.backend.fp8_weights = engine.fp8_weights();
  options.backend.portable_kernels = engine.kernels() == config::Kernels::PORTABLE;
  options.backend.cuda_library = engine.cuda_library();
  options.backend.kernel_cache = KernelCacheOf(engine);
  options.context_length = engine.context_length();
  options.max_step_tokens = StepTokensOf(engine, kind);
  options.max_sequences = engine.max_sequences();
  options.fp8_kv = KvTypeOf(engine) == DType::kFp8;
  options.bf16.first_attention_outputs = engine.bf16_layers().first_attention_outputs();
  options.bf16.first_mlps = engine.bf16_layers().first_mlps();
  options.bf16.last_mlps = engine.bf16_layers().last_mlps();
  if (kind == WorkerKind::kPrefill) options.balance = StageBalance::kPrompts;
  return options;
}

KvOptions KvOptionsOf(const config::WorkerConfig& config) {
  const config::EngineConfig& from = config.engine();
  KvOptions to;
  to.blocks = from.kv_blocks();
  to.memory_bytes = static_cast<size_t>(from.kv_memory_mib()) << 20;
  if (to.memory_bytes == 0 && !OnGpu(from)) to.memory_bytes = kCpuKvBytes;
  to.memory_fraction = from.kv_memory_fraction();
  to.block_tokens = from.block_tokens();
  to.dtype = KvTypeOf(from);
  return to;
}

EngineOptions EngineOptionsOf(const config::WorkerConfig& config, WorkerKind kind) {
  const config::EngineConfig& from = config.engine();
  EngineOptions to;
  to.max_step_tokens = StepTokensOf(from, kind);
  if (kind == WorkerKind::kPrefill) to.full_step_tokens = kFullPrefillStepTokens;
  to.max_sequences = from.max_sequences();
  to.max_waiting = from.max_waiting();
  to.itl_target = FromSeconds(from.itl_target_ms() / 1e3);
  to.policy = PolicyOf(from);
  to.admission = from.admission() == config::EngineConfig::GUARANTEED_NO_EVICT
                     ? AdmissionPolicy::kGuaranteedNoEvict
                     : AdmissionPolicy::kMaxUtilization;
  to.prefix_cache = from.prefix_cache();
  to.lookup_drafts = from.lookup_drafts();
  to.state_checkpoint_tokens = from.state_checkpoint_tokens();
  to.repeat_output_singly = OnGpu(from) && IsDeterministic(from, kind);
  to.mask_threads = from.mask_threads();
  to.hash_secret = config.hash_secret();
  return to;
}

Duration StepLimitOf(const config::EngineConfig& engine) {
  if (engine.step_limit_seconds() > 0) return FromSeconds(engine.step_limit_seconds());
  return OnGpu(engine) ? kGpuStepLimit : Duration::zero();
}

std::vector<std::string> TransportsOf(const config::TransferConfig& config, MemoryKind arena) {
  if (config.transports_size() > 0) {
    return {config.transports().begin(), config.transports().end()};
  }
  if (arena == MemoryKind::kCuda) return {"cuda_ipc", "tcp"};
  return {"shm", "verbs", "tcp"};
}

}  // namespace baton

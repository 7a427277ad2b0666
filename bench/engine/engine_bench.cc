// Runs an engine with a whole model in this process and prints a JSON object for each case.
//   engine_bench --model PATH [--device cpu] [--dummy 1: random weights in the model's shape]
//                [--threads 2] [--budget 512] [--itl_target_ms 0] [--repeat 1] [--deterministic 1]
//                [--weights fp8] [--kv fp8 | bf16 | f16 | f32]
//                [--pipeline 1: stages, each a process with --threads threads; CPUs only]
//                [--cases STREAMSxPROMPTxOUTPUT[+INTRUDER],…]
// A case submits STREAMS prompts of PROMPT tokens at once and generates OUTPUT tokens for each.
// With INTRUDER, a prompt of INTRUDER tokens arrives after a third of the decode steps.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/engine/forked_ranks.h"
#include "common/base/quantile.h"
#include "common/engine/decoder_runner.h"
#include "common/engine/engine.h"
#include "common/engine/local_executor.h"
#include "common/group/group_executor.h"
#include "common/model/open_model.h"
#include "kernels/backend.h"

namespace baton {
namespace {

struct Case {
  int32_t streams = 1;
  int32_t prompt = 16;
  int32_t output = 128;
  int32_t intruder = 0;  // tokens; 0: none
};

struct Arguments {
  std::string model;
  std::string device{kCpu};
  std::string weights = "auto";
  std::string kv = "auto";
  std::string kernel_cache;
  std::vector<Case> cases;
  std::map<std::string, int32_t> numbers = {{"threads", 2},
                                            {"budget", 512},
                                            {"itl_target_ms", 0},
                                            {"dummy", 0},
                                            {"repeat", 1},
                                            {"tensor", 1},
                                            {"pipeline", 1},
                                            {"deterministic", 0}};
};

StatusOr<std::vector<Case>> ParseCases(const std::string& text) {
  std::vector<Case> cases;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    Case one;
    const int found = std::sscanf(
        part.c_str(), "%dx%dx%d+%d", &one.streams, &one.prompt, &one.output, &one.intruder);
    if (found < 3) return InvalidArgument("'{}' is not STREAMSxPROMPTxOUTPUT[+INTRUDER]", part);
    cases.push_back(one);
  }
  return cases;
}

StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--model") {
      arguments.model = value;
    } else if (name == "--device") {
      arguments.device = value;
    } else if (name == "--weights" && (value == "auto" || value == "fp8")) {
      arguments.weights = value;
    } else if (name == "--kv") {
      arguments.kv = value;
    } else if (name == "--kernel_cache") {
      arguments.kernel_cache = value;
    } else if (name == "--cases") {
      BATON_ASSIGN_OR_RETURN(arguments.cases, ParseCases(value));
    } else if (name.starts_with("--") && arguments.numbers.contains(name.substr(2))) {
      arguments.numbers[name.substr(2)] = std::atoi(value.c_str());
    } else {
      return InvalidArgument("{} is not an option of engine_bench", name);
    }
  }
  if (arguments.model.empty()) return InvalidArgument("--model PATH is missing");
  if (arguments.cases.empty()) arguments.cases.emplace_back();
  return arguments;
}

// The device of a rank: --device names one for all ranks, or one for each, separated by commas.
StatusOr<std::string> DeviceOf(const Arguments& arguments, int ranks, int rank) {
  std::vector<std::string> devices;
  std::istringstream parts(arguments.device);
  for (std::string part; std::getline(parts, part, ',');) devices.push_back(part);
  if (devices.size() == 1) return devices[0];
  if (std::cmp_equal(devices.size(), ranks)) return devices[static_cast<size_t>(rank)];
  return InvalidArgument("--device names {} devices for {} ranks", devices.size(), ranks);
}

StatusOr<DType> KvDTypeOf(const Arguments& arguments) {
  if (arguments.kv == "auto") return arguments.device == kCpu ? DType::kF16 : DType::kBF16;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kFp8}) {
    if (Name(dtype) == arguments.kv) return dtype;
  }
  return InvalidArgument("--kv is '{}'; it must be fp8, bf16, f16 or f32", arguments.kv);
}

// Records when tokens arrive. The intruder's request has the id 0.
class Meter final : public EngineListener {
 public:
  explicit Meter(const Clock& clock) : clock_(clock) {}
  void OnTokens(std::span<const TokenOutput> tokens) override {
    const Time now = clock_.Now();
    for (const TokenOutput& output : tokens) {
      ++count_;
      if (output.id.value() == 0) {
        if (output.index == 0) intruder_first_token_ = now;
        continue;
      }
      if (output.index == 0) last_first_token_ = now;
      Time& last = last_token_[output.id.value()];
      if (output.index > 0) worst_gap_ = std::max(worst_gap_, now - last);
      last = now;
    }
  }
  void OnFinished(RequestId, Epoch, const RequestTimes&) override {}
  void OnFailed(const RequestFailure& failure) override { failure_ = failure.status; }
  void OnKvChunk(const KvChunk&) override {}
  void OnKvReserved(const KvReservation&) override {}
  void OnCacheEvent(const CacheEvent&) override {}

  Time last_first_token() const { return last_first_token_; }
  Time intruder_first_token() const { return intruder_first_token_; }
  Duration worst_gap() const { return worst_gap_; }
  void ForgetGap() { worst_gap_ = {}; }
  int64_t count() const { return count_; }
  const Status& failure() const { return failure_; }

 private:
  const Clock& clock_;
  Time last_first_token_{};
  Time intruder_first_token_{};
  std::map<uint64_t, Time> last_token_;
  Duration worst_gap_{};
  int64_t count_ = 0;
  Status failure_;
};

Request MakeRequest(uint64_t id, int32_t prompt, int32_t output, int32_t vocabulary) {
  Request request;
  request.id = RequestId(id);
  request.prompt_length = prompt;
  const auto stream = static_cast<int64_t>(id);
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < prompt; ++i) {
    tokens.push_back(static_cast<TokenId>((100 + stream * 7919 + i * 613) % vocabulary));
  }
  request.tokens = std::move(tokens);
  request.max_tokens = output;
  request.sampling.temperature = 0;
  return request;
}

// The blocks that a case needs.
int32_t BlocksFor(const Case& one, int32_t block_tokens) {
  const int32_t tokens =
      one.streams * (one.prompt + one.output + block_tokens) + one.intruder + 2 * block_tokens;
  return tokens / block_tokens + one.streams;
}

// A KV arena for each of the cases.
KvOptions KvOfAll(const std::vector<Case>& cases, DType dtype) {
  KvOptions kv = {.dtype = dtype};
  for (const Case& one : cases) kv.blocks = std::max(kv.blocks, BlocksFor(one, kv.block_tokens));
  return kv;
}

// The processor time of this process, or of each rank.
std::vector<double> CpuSeconds(const ForkedRanks* ranks) {
  if (ranks != nullptr) return ranks->CpuSeconds();
  return {static_cast<double>(std::clock()) / CLOCKS_PER_SEC};
}

double Milliseconds(Duration duration) {
  return ToSeconds(duration) * 1e3;
}

// Runs one case on an engine of its own. `decode_step_ms` counts only the steps that decode all
// streams and compute no prompt.
class CaseRun final {
 public:
  CaseRun(const Case& which,
          const std::map<std::string, int32_t>& numbers,
          DType kv_dtype,
          DecoderRunner& runner,
          const Ops& ops,
          Executor* group)
      : case_(which),
        numbers_(numbers),
        kv_dtype_(kv_dtype),
        runner_(runner),
        ops_(ops),
        group_(group) {}

  StatusOr<nlohmann::json> Run() {
    EngineOptions options;
    options.max_step_tokens = numbers_.at("budget");
    options.itl_target = std::chrono::milliseconds(numbers_.at("itl_target_ms"));
    options.max_sequences = case_.streams + (case_.intruder > 0 ? 1 : 0);
    KvOptions kv;
    kv.blocks = BlocksFor(case_, kv.block_tokens);
    kv.dtype = kv_dtype_;
    options.prefix_cache = false;
    Executor* executor = group_;
    if (executor == nullptr) {
      BATON_ASSIGN_OR_RETURN(executor_, LocalExecutor::Create(kv, runner_));
      executor = executor_.get();
    }
    bubble_before_ = executor->bubble();
    BATON_ASSIGN_OR_RETURN(engine_, Engine::Create(options, *executor, meter_, clock_));
    const int32_t vocabulary = runner_.traits().vocabulary;
    for (int32_t i = 0; i < case_.streams; ++i) {
      engine_->Submit(MakeRequest(i + 1, case_.prompt, case_.output, vocabulary));
    }
    const Time start = clock_.Now();
    while (Step()) {
    }
    BATON_RETURN_IF_ERROR(meter_.failure());
    return Result(start, clock_.Now());
  }

 private:
  bool Step() {
    const EngineStats before = engine_->Stats();
    const Time start = clock_.Now();
    if (!engine_->Step()) return false;
    const Time end = clock_.Now();
    const EngineStats after = engine_->Stats();
    const int64_t decoded = after.output_tokens - before.output_tokens;
    if (after.prompt_tokens == before.prompt_tokens && decoded == case_.streams) {
      step_ms_.push_back(Milliseconds(end - start));
      host_ms_.push_back(Milliseconds(end - start - ops_.DeviceTime()));
    }
    if (intruded_ && after.prompt_tokens != before.prompt_tokens) {
      chunks_.push_back({after.prompt_tokens - before.prompt_tokens,
                         Milliseconds(end - start),
                         Milliseconds(ops_.DeviceTime())});
    }
    const bool middle = std::cmp_equal(step_ms_.size(), case_.output / 3);
    if (case_.intruder > 0 && !intruded_ && middle) {
      undisturbed_ms_ = Milliseconds(meter_.worst_gap());
      meter_.ForgetGap();
      intruded_ = true;
      intrusion_ = clock_.Now();
      engine_->Submit(MakeRequest(0, case_.intruder, 1, runner_.traits().vocabulary));
    }
    return true;
  }

  nlohmann::json Result(Time start, Time end) const {
    const double prefill = ToSeconds(meter_.last_first_token() - start);
    const double decode = ToSeconds(end - meter_.last_first_token());
    const EngineStats stats = engine_->Stats();
    nlohmann::json result = {{"streams", case_.streams},
                             {"prompt", case_.prompt},
                             {"output", case_.output},
                             {"tokens", meter_.count()},
                             {"total_s", ToSeconds(end - start)},
                             {"output_tok_s", meter_.count() / ToSeconds(end - start)},
                             {"prefill_s", prefill},
                             {"prefill_tok_s", case_.streams * case_.prompt / prefill},
                             {"steps", stats.steps},
                             {"bubble_s", stats.bubble_seconds - ToSeconds(bubble_before_)},
                             {"fit_ms", stats.step_ms_base},
                             {"fit_ms_per_token", stats.step_ms_per_token},
                             {"fit_ms_per_prompt_token", stats.step_ms_per_prompt_token}};
    if (case_.output > 1) {
      result["decode_s"] = decode;
      result["decode_tok_s"] = case_.streams * (case_.output - 1) / decode;
    }
    if (!step_ms_.empty()) {
      result["decode_step_ms"] = Quantile(step_ms_, 0.5);
      result["decode_step_ms_p10"] = Quantile(step_ms_, 0.1);
      result["decode_step_host_ms"] = Quantile(host_ms_, 0.5);
      result["decode_step_ms_p99"] = Quantile(step_ms_, 0.99);
    }
    if (case_.intruder > 0) {
      result["intruder"] = case_.intruder;
      result["intruder_ttft_ms"] = Milliseconds(meter_.intruder_first_token() - intrusion_);
      result["worst_gap_ms"] = Milliseconds(meter_.worst_gap());
      result["worst_gap_undisturbed_ms"] = undisturbed_ms_;
      result["chunks"] = chunks_;
    }
    return result;
  }

  const Case case_;
  const std::map<std::string, int32_t>& numbers_;
  const DType kv_dtype_;
  DecoderRunner& runner_;
  const Ops& ops_;
  Executor* const group_;  // null: an executor of this process alone
  Duration bubble_before_{};
  const SteadyClock clock_;
  Meter meter_{clock_};
  std::unique_ptr<LocalExecutor> executor_;
  std::unique_ptr<Engine> engine_;
  std::vector<double> step_ms_;
  std::vector<double> host_ms_;  // the part of each of these steps in which the device was idle
  // For each chunk of the intruder's prompt: tokens, step time in ms, device time in ms.
  std::vector<std::tuple<int64_t, double, double>> chunks_;
  bool intruded_ = false;
  Time intrusion_{};
  double undisturbed_ms_ = 0;
};

Status Main(int argc, char** argv) {
  BATON_ASSIGN_OR_RETURN(const Arguments arguments, Parse(argc, argv));
  const auto number = [&](const char* name) { return arguments.numbers.at(name); };
  std::unique_ptr<ForkedRanks> ranks;
  const GroupShape shape = {number("tensor"), number("pipeline")};
  if (shape.ranks() > 1) {
    BATON_ASSIGN_OR_RETURN(ranks, ForkedRanks::Start(shape));
  }
  BATON_ASSIGN_OR_RETURN(const std::string device,
                         DeviceOf(arguments, shape.ranks(), ranks ? ranks->rank() : 0));
  const SteadyClock clock;
  const Time start = clock.Now();
  BATON_ASSIGN_OR_RETURN(
      OpenedModel model,
      OpenModel(arguments.model,
                {.format = number("dummy") != 0 ? LoadFormat::kDummy : LoadFormat::kAuto}));
  BATON_ASSIGN_OR_RETURN(const auto backend,
                         OpenBackend({.device = device,
                                      .threads = number("threads"),
                                      .deterministic = number("deterministic") != 0,
                                      .fp8_weights = arguments.weights == "fp8",
                                      .cuda_library = {},
                                      .kernel_cache = arguments.kernel_cache,
                                      .groups = ranks ? ranks->groups() : RankGroups{}}));
  int32_t most = 1;
  for (const Case& one : arguments.cases) most = std::max(most, one.streams + 1);
  BATON_ASSIGN_OR_RETURN(const DType kv_dtype, KvDTypeOf(arguments));
  const DecoderLimits limits = {
      .max_rows = number("budget"), .max_logit_rows = most, .fp8_kv = kv_dtype == DType::kFp8};
  BATON_ASSIGN_OR_RETURN(const auto decoder,
                         Decoder::Load(model.spec, *model.weights, backend->ops(), limits));
  DecoderRunner runner(*decoder);
  std::unique_ptr<LocalExecutor> own;
  std::unique_ptr<GroupExecutor> group;
  if (ranks != nullptr) {
    const RankPart part = {.shard = decoder->plan().kv_shard, .agree_on_blocks = {}};
    BATON_ASSIGN_OR_RETURN(own,
                           LocalExecutor::Create(KvOfAll(arguments.cases, kv_dtype), runner, part));
    if (ranks->rank() > 0) return ranks->Follow(*own);
    group = std::make_unique<GroupExecutor>(
        *own, ranks->ring(), std::vector<FollowerArena>(), GroupExecutor::Options{});
  }
  const double load = ToSeconds(clock.Now() - start);
  for (const Case& one : arguments.cases) {
    // A warm-up run takes the page faults and, on a GPU, the GEMM autotuning and the graph capture.
    Case warm = one;
    warm.output = std::min(one.output, 4);
    warm.intruder = 0;
    BATON_RETURN_IF_ERROR(
        CaseRun(warm, arguments.numbers, kv_dtype, runner, backend->ops(), group.get())
            .Run()
            .status());
    for (int32_t i = 0; i < number("repeat"); ++i) {
      const std::vector<double> before = CpuSeconds(ranks.get());
      BATON_ASSIGN_OR_RETURN(
          nlohmann::json result,
          CaseRun(one, arguments.numbers, kv_dtype, runner, backend->ops(), group.get()).Run());
      std::vector<double> used = CpuSeconds(ranks.get());
      for (size_t rank = 0; rank < used.size(); ++rank) used[rank] -= before[rank];
      result["cpu_s"] = used;
      result["model"] = model.name;
      result["device"] = arguments.device;
      result["budget"] = number("budget");
      result["itl_target_ms"] = number("itl_target_ms");
      result["deterministic"] = number("deterministic") != 0;
      result["weights"] = arguments.weights;
      result["kv"] = Name(kv_dtype);
      result["load_s"] = load;
      result["weight_bytes"] = decoder->weight_bytes();
      if (arguments.device == kCpu) result["threads"] = number("threads");
      result["tensor"] = number("tensor");
      result["pipeline"] = number("pipeline");
      std::printf("%s\n", result.dump().c_str());
      std::fflush(stdout);
    }
  }
  return OkStatus();
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const baton::Status status = baton::Main(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "engine_bench: %s\n", status.ToString().c_str());
  return 1;
}

// Runs an engine with a whole model in this process and prints a JSON object for each case.
//   engine_bench --model PATH [--device cpu | cuda:0 | one for each rank: cuda:0,cuda:1]
//                [--dummy 1: random weights in the model's shape]
//                [--cpu_isa auto] [--threads 2] [--budget 512] [--itl_target_ms 0] [--repeat 1]
//                [--portable 1: engine.kernels: portable] [--kernels 1: prints their choice]
//                [--deterministic 1] [--emitted 0: tokens at a prompt's end that are output]
//                [--weights fp8] [--kv fp8 | bf16 | f16 | f32]
//                [--tensor 1: ranks of a stage] [--pipeline 1: stages]
//                [--prefill 1: layers divided among the stages as on a prefill worker]
//                [--grammar fields | FILE: a JSON schema]
//                [--cases STREAMSxPROMPTxOUTPUT[+INTRUDER],…]
// A case submits STREAMS prompts of PROMPT tokens at once and generates OUTPUT tokens for each.
// With INTRUDER, a prompt of INTRUDER tokens arrives after a third of the decode steps. With
// --grammar, each repeat runs twice: with free rows, then with all rows constrained.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/engine/forked_ranks.h"
#include "bench/engine/print_kernels.h"
#include "bench/engine/request_grammar.h"
#include "bench/engine/step_meter.h"
#include "bench/engine/token_meter.h"
#include "common/base/quantile.h"
#include "common/engine/decoder_executor.h"
#include "common/engine/engine.h"
#include "common/group/group_executor.h"
#include "common/model/dense_kv.h"
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
  std::string grammar;
  std::string cpu_isa = "auto";
  std::vector<Case> cases;
  std::map<std::string, int32_t> numbers = {{"threads", 2},
                                            {"budget", 512},
                                            {"itl_target_ms", 0},
                                            {"dummy", 0},
                                            {"repeat", 1},
                                            {"tensor", 1},
                                            {"pipeline", 1},
                                            {"prefill", 0},
                                            {"deterministic", 0},
                                            {"portable", 0},
                                            {"kernels", 0},
                                            {"emitted", 0}};
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
    } else if (name == "--grammar") {
      arguments.grammar = value;
    } else if (name == "--cpu_isa") {
      arguments.cpu_isa = value;
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

// Adds the multiply-adds of the GEMMs for one row.
void AddProducts(const ModelSpec& spec, nlohmann::json& result) {
  const int64_t attention =
      int64_t{spec.hidden} * spec.head_dim * (2 * spec.heads + 2 * spec.kv_heads);
  int64_t sum = 0;
  for (const LayerSpec& layer : spec.layers) {
    const int64_t width =
        layer.moe ? int64_t{spec.moe.experts_per_token} * spec.moe.intermediate : spec.intermediate;
    sum += attention + int64_t{3} * spec.hidden * width;
  }
  result["layer_products_per_row"] = sum;
  result["head_products_per_row"] = int64_t{spec.vocab} * spec.hidden;
}

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

// The arena blocks that a case needs: those of its tokens, and two states for each sequence,
// because a step may read one and write another.
int32_t BlocksFor(const Case& one, const DenseKv& kv) {
  const KvLayout layout = DenseLayout(kv);
  const KvShard whole = WholeModel(layout);
  const int32_t sequences = one.streams + (one.intruder > 0 ? 1 : 0);
  const int32_t tokens = one.streams * (one.prompt + one.output + kv.block_tokens) + one.intruder +
                         2 * kv.block_tokens;
  return (tokens / kv.block_tokens + one.streams) * layout.block_groups() +
         2 * sequences * StateBlocks(layout, {&whole, 1});
}

// A KV arena for each of the cases.
KvOptions KvOfAll(const std::vector<Case>& cases, const DenseKv& shape, DType dtype) {
  KvOptions kv = {.dtype = dtype};
  for (const Case& one : cases) kv.blocks = std::max(kv.blocks, BlocksFor(one, shape));
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
          Decoder& decoder,
          Executor* group,
          IssueTimes* issue_times,
          const RequestGrammar* grammar)
      : case_(which),
        numbers_(numbers),
        kv_dtype_(kv_dtype),
        decoder_(decoder),
        ops_(decoder.ops()),
        group_(group),
        issue_times_(issue_times),
        grammar_(grammar) {}

  StatusOr<nlohmann::json> Run() {
    EngineOptions options;
    options.max_step_tokens = numbers_.at("budget");
    options.itl_target = std::chrono::milliseconds(numbers_.at("itl_target_ms"));
    options.max_sequences = case_.streams + (case_.intruder > 0 ? 1 : 0);
    KvOptions kv;
    kv.dtype = kv_dtype_;
    kv.blocks = BlocksFor(case_, DenseKvOf(decoder_.spec(), ops_.kv_needs()));
    options.prefix_cache = false;
    options.repeat_output_singly = numbers_.at("deterministic") != 0 && ops_.queues_steps();
    Executor* executor = group_;
    if (executor == nullptr) {
      BATON_ASSIGN_OR_RETURN(executor_, DecoderExecutor::Create(decoder_, {.kv = kv}));
      executor = executor_.get();
    }
    bubble_before_ = executor->bubble();
    steps_.emplace(*executor, issue_times_, 0);
    GrammarCompiler* compiler = grammar_ == nullptr ? nullptr : &grammar_->compiler();
    BATON_ASSIGN_OR_RETURN(engine_, Engine::Create(options, *steps_, meter_, clock_, compiler));
    const int32_t vocabulary = executor->traits().vocabulary;
    for (int32_t i = 0; i < case_.streams; ++i) {
      Request request = MakeRequest(i + 1, case_.prompt, case_.output, vocabulary);
      request.prompt_length -= numbers_.at("emitted");
      request.max_tokens += numbers_.at("emitted");
      if (grammar_ != nullptr) grammar_->Constrain(request);
      engine_->Submit(std::move(request));
    }
    const Time start = clock_.Now();
    while (Step() || engine_->Stats().first_masks > 0) {
    }
    BATON_RETURN_IF_ERROR(meter_.failure());
    const int64_t wanted = int64_t{case_.streams} * case_.output + (case_.intruder > 0 ? 1 : 0);
    if (meter_.count() != wanted) {
      return InvalidArgument(
          "{} tokens instead of {}: outputs of this grammar end early", meter_.count(), wanted);
    }
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
      engine_->Submit(MakeRequest(0, case_.intruder, 1, steps_->traits().vocabulary));
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
                             {"emitted", numbers_.at("emitted")},
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
    result["prompt_steps_under_way"] = steps_->prompts_under_way();
    if (case_.output > 1) {
      result["decode_s"] = decode;
      result["decode_tok_s"] = case_.streams * (case_.output - 1) / decode;
      result["decode_steps_under_way"] = steps_->decodes_under_way();
      result["decode_rows_per_step"] = steps_->rows_of_decode();
    }
    if (const std::vector<double> lags = steps_->DecodeLags(); !lags.empty()) {
      result["plan_to_last_issue_us"] = Quantile(lags, 0.5);
      result["plan_to_last_issue_us_p99"] = Quantile(lags, 0.99);
    }
    if (meter_.full_rate() > 0) {
      result["full_decode_tok_s"] = meter_.full_rate();
      result["full_decode_round_ms"] = 1e3 * case_.streams / meter_.full_rate();
    }
    if (!step_ms_.empty()) {
      result["decode_step_ms"] = Quantile(step_ms_, 0.5);
      result["decode_step_ms_p10"] = Quantile(step_ms_, 0.1);
      result["decode_step_host_ms"] = Quantile(host_ms_, 0.5);
      result["decode_step_host_ms_p99"] = Quantile(host_ms_, 0.99);
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
  Decoder& decoder_;
  const Ops& ops_;
  Executor* const group_;                // null: an executor of this process alone
  IssueTimes* const issue_times_;        // null: one process
  const RequestGrammar* const grammar_;  // null: free rows
  Duration bubble_before_{};
  const SteadyClock clock_;
  TokenMeter meter_{
      clock_, case_.streams, numbers_.at("emitted"), numbers_.at("emitted") + case_.output};
  std::unique_ptr<DecoderExecutor> executor_;
  std::optional<StepMeter> steps_;
  std::unique_ptr<Engine> engine_;
  std::vector<double> step_ms_;
  std::vector<double> host_ms_;  // the part of each of these steps in which the device was idle
  // For each chunk of the intruder's prompt: tokens, step time in ms, device time in ms.
  std::vector<std::tuple<int64_t, double, double>> chunks_;
  bool intruded_ = false;
  Time intrusion_{};
  double undisturbed_ms_ = 0;
};

// What all cases have in common.
struct Setup {
  const Arguments& arguments;
  DType kv_dtype;
  Decoder& decoder;
  Executor* group;                // null: one process
  ForkedRanks* ranks;             // null: one process
  const RequestGrammar* grammar;  // null: free rows only
  nlohmann::json result;          // its part of each result
};

StatusOr<nlohmann::json> RunOnce(const Case& one, const Setup& with, bool constrained) {
  const std::vector<double> before = CpuSeconds(with.ranks);
  BATON_ASSIGN_OR_RETURN(nlohmann::json result,
                         CaseRun(one,
                                 with.arguments.numbers,
                                 with.kv_dtype,
                                 with.decoder,
                                 with.group,
                                 with.ranks == nullptr ? nullptr : &with.ranks->issue_times(),
                                 constrained ? with.grammar : nullptr)
                             .Run());
  std::vector<double> used = CpuSeconds(with.ranks);
  for (size_t rank = 0; rank < used.size(); ++rank) used[rank] -= before[rank];
  result["cpu_s"] = used;
  result.update(with.result);
  if (constrained) {
    result["grammar"] = with.arguments.grammar;
    result["grammar_vocabulary"] = with.grammar->synthetic() ? "synthetic" : "model";
  }
  return result;
}

Status RunCase(const Case& one, const Setup& with) {
  // A warm-up run takes the page faults and, on a GPU, the GEMM autotuning and the graph capture.
  Case warm = one;
  warm.output = std::min(one.output, 4);
  warm.intruder = 0;
  BATON_RETURN_IF_ERROR(RunOnce(warm, with, false).status());
  for (int32_t i = 0; i < with.arguments.numbers.at("repeat"); ++i) {
    for (const bool constrained : {false, true}) {
      if (constrained && with.grammar == nullptr) continue;
      BATON_ASSIGN_OR_RETURN(const nlohmann::json result, RunOnce(one, with, constrained));
      std::printf("%s\n", result.dump().c_str());
      std::fflush(stdout);
    }
  }
  return OkStatus();
}

Status PrintKernelsOf(const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const DType kv, KvDTypeOf(arguments));
  const auto& numbers = arguments.numbers;
  return PrintKernels(
      {arguments.model, arguments.device, arguments.cpu_isa, numbers.at("portable") != 0},
      {.deterministic = numbers.at("deterministic") != 0,
       .fp8_weights = arguments.weights == "fp8",
       .kv = kv,
       .context = arguments.cases.front().prompt,
       .max_rows = numbers.at("budget")});
}

Status Main(int argc, char** argv) {
  BATON_ASSIGN_OR_RETURN(const Arguments arguments, Parse(argc, argv));
  const auto number = [&](const char* name) { return arguments.numbers.at(name); };
  if (number("kernels") != 0) return PrintKernelsOf(arguments);
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
                                      .cpu_isa = arguments.cpu_isa,
                                      .deterministic = number("deterministic") != 0,
                                      .fp8_weights = arguments.weights == "fp8",
                                      .portable_kernels = number("portable") != 0,
                                      .cuda_library = {},
                                      .kernel_cache = arguments.kernel_cache,
                                      .groups = ranks ? ranks->groups() : RankGroups{}}));
  int32_t most = 1;
  for (const Case& one : arguments.cases) most = std::max(most, one.streams + 1);
  BATON_ASSIGN_OR_RETURN(const DType kv_dtype, KvDTypeOf(arguments));
  const DecoderLimits limits = {
      .max_rows = number("budget"),
      .max_logit_rows = most,
      .fp8_kv = kv_dtype == DType::kFp8,
      .balance = number("prefill") != 0 ? StageBalance::kPrompts : StageBalance::kDecodes};
  BATON_ASSIGN_OR_RETURN(const auto decoder,
                         Decoder::Load(model.spec, *model.weights, backend->ops(), limits));
  std::unique_ptr<DecoderExecutor> own;
  std::unique_ptr<GroupExecutor> group;
  if (ranks != nullptr) {
    const DenseKv dense = DenseKvOf(decoder->spec(), decoder->ops().kv_needs());
    BATON_ASSIGN_OR_RETURN(
        own, DecoderExecutor::Create(*decoder, {.kv = KvOfAll(arguments.cases, dense, kv_dtype)}));
    if (ranks->rank() > 0) return ranks->Follow(*own);
    group = std::make_unique<GroupExecutor>(
        *own, ranks->ring(), std::vector<FollowerArena>(), GroupExecutor::Options{});
  }
  const double load = ToSeconds(clock.Now() - start);
  std::unique_ptr<RequestGrammar> grammar;
  if (!arguments.grammar.empty()) {
    BATON_ASSIGN_OR_RETURN(
        grammar, RequestGrammar::Create(arguments.grammar, arguments.model, model.spec.vocab));
  }
  nlohmann::json setup = {
      {"model", model.name},
      {"device", arguments.device == kCpu ? backend->device().name() : arguments.device},
      {"deterministic", number("deterministic") != 0},
      {"portable", number("portable") != 0},
      {"weights", arguments.weights},
      {"kv", Name(kv_dtype)},
      {"load_s", load},
      {"weight_bytes", decoder->weight_bytes()}};
  for (const char* name : {"budget", "itl_target_ms", "tensor", "pipeline", "prefill"}) {
    setup[name] = number(name);
  }
  AddProducts(model.spec, setup);
  if (arguments.device == kCpu) setup["threads"] = number("threads");
  const Setup with = {
      arguments, kv_dtype, *decoder, group.get(), ranks.get(), grammar.get(), setup};
  for (const Case& one : arguments.cases) BATON_RETURN_IF_ERROR(RunCase(one, with));
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

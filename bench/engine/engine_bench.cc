// Runs a model in this process: `streams` prompts of `prompt` tokens at once, `output` tokens each,
// and prints one JSON object.
//   engine_bench --model PATH [--threads 2] [--streams 1] [--prompt 16] [--output 128] [--warm 1]
//                [--dummy 1: random weights of the model's shape]
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "common/engine/decoder_runner.h"
#include "common/engine/engine.h"
#include "common/model/open_model.h"
#include "kernels/cpu/cpu_backend.h"

namespace baton {
namespace {

struct Arguments {
  std::string model;
  std::map<std::string, int32_t> numbers = {
      {"threads", 2}, {"streams", 1}, {"prompt", 16}, {"output", 128}, {"warm", 1}, {"dummy", 0}};
};

StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--model") {
      arguments.model = argv[i + 1];
    } else if (name.starts_with("--") && arguments.numbers.contains(name.substr(2))) {
      arguments.numbers[name.substr(2)] = std::atoi(argv[i + 1]);
    } else {
      return InvalidArgument("{} is not an option of engine_bench", name);
    }
  }
  if (arguments.model.empty()) return InvalidArgument("--model PATH is missing");
  return arguments;
}

// Notes when each stream gets its first token, and how many tokens there are.
class Meter final : public EngineListener {
 public:
  explicit Meter(const Clock& clock) : clock_(clock) {}
  void OnTokens(std::span<const TokenOutput> tokens) override {
    for (const TokenOutput& output : tokens) {
      if (output.index == 0) last_first_token_ = clock_.Now();
    }
    count_ += static_cast<int64_t>(tokens.size());
  }
  void OnFinished(RequestId, Epoch, const RequestTimes&) override {}
  void OnFailed(const RequestFailure& failure) override { failure_ = failure.status; }
  void OnKvChunk(const KvChunk&) override {}
  void OnKvReserved(const KvReservation&) override {}
  void OnCacheEvent(const CacheEvent&) override {}

  Time last_first_token() const { return last_first_token_; }
  int64_t count() const { return count_; }
  const Status& failure() const { return failure_; }

 private:
  const Clock& clock_;
  Time last_first_token_{};
  int64_t count_ = 0;
  Status failure_;
};

Request MakeRequest(const Arguments& arguments, int32_t stream, int32_t vocabulary) {
  Request request;
  request.id = RequestId(stream + 1);
  request.prompt_length = arguments.numbers.at("prompt");
  for (int32_t i = 0; i < request.prompt_length; ++i) {
    request.tokens.push_back((100 + stream * 7919 + i * 613) % vocabulary);
  }
  request.max_tokens = arguments.numbers.at("output");
  request.sampling.temperature = 0;
  return request;
}

StatusOr<nlohmann::json> RunOnce(const Arguments& arguments, DecoderRunner& runner) {
  const int32_t streams = arguments.numbers.at("streams");
  const int32_t prompt = arguments.numbers.at("prompt");
  const int32_t output = arguments.numbers.at("output");
  const SteadyClock clock;
  Meter meter(clock);
  EngineOptions options;
  options.max_step_tokens = runner.traits().max_rows;
  options.max_sequences = streams;
  options.kv_blocks = streams * ((prompt + output) / options.block_tokens + 2);
  options.prefix_cache = false;
  BATON_ASSIGN_OR_RETURN(auto engine, Engine::Create(options, runner, meter, clock));
  for (int32_t i = 0; i < streams; ++i) {
    engine->Submit(MakeRequest(arguments, i, runner.traits().vocabulary));
  }
  const Time start = clock.Now();
  while (engine->Step()) {
  }
  const Time end = clock.Now();
  BATON_RETURN_IF_ERROR(meter.failure());
  const double prefill = ToSeconds(meter.last_first_token() - start);
  const double decode = ToSeconds(end - meter.last_first_token());
  const EngineStats stats = engine->Stats();
  nlohmann::json result = {{"threads", arguments.numbers.at("threads")},
                           {"streams", streams},
                           {"prompt", prompt},
                           {"output", output},
                           {"tokens", meter.count()},
                           {"prefill_s", prefill},
                           {"prefill_tok_s", streams * prompt / prefill},
                           {"steps", stats.steps},
                           {"fit_ms", stats.step_ms_base},
                           {"fit_ms_per_token", stats.step_ms_per_token}};
  if (output > 1) {
    result["decode_s"] = decode;
    result["decode_tok_s"] = streams * (output - 1) / decode;
    result["decode_step_ms"] = decode * 1e3 / (output - 1);
  }
  return result;
}

Status Main(int argc, char** argv) {
  BATON_ASSIGN_OR_RETURN(const Arguments arguments, Parse(argc, argv));
  const bool dummy = arguments.numbers.at("dummy") != 0;
  BATON_ASSIGN_OR_RETURN(
      OpenedModel model,
      OpenModel(arguments.model, {.format = dummy ? LoadFormat::kDummy : LoadFormat::kAuto}));
  CpuDevice device;
  BATON_ASSIGN_OR_RETURN(const auto ops,
                         MakeCpuOps(device, {.threads = arguments.numbers.at("threads")}));
  const DecoderLimits limits = {.max_rows = 512, .max_logit_rows = arguments.numbers.at("streams")};
  BATON_ASSIGN_OR_RETURN(const auto decoder,
                         Decoder::Load(model.spec, *model.weights, *ops, limits));
  DecoderRunner runner(*decoder);
  // The first run pays for touching the arena and the weights.
  Arguments warm = arguments;
  warm.numbers["output"] = 4;
  if (arguments.numbers.at("warm") != 0) {
    BATON_RETURN_IF_ERROR(RunOnce(warm, runner).status());
  }
  BATON_ASSIGN_OR_RETURN(nlohmann::json result, RunOnce(arguments, runner));
  result["model"] = model.name;
  result["weight_bytes"] = decoder->weight_bytes();
  std::printf("%s\n", result.dump().c_str());
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

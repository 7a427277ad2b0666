// Measures what constrained rows cost an engine whose device needs 8 ms for a step, as a GPU does,
// and queues steps. The device computes nothing; it samples by the masks. Prints a JSON object.
//   constrained_step_bench [--rows 64] [--output 200] [--step_us 8000] [--vocabulary 128000]
//                          [--rounds 5] [--mask_threads 2]
// Each round generates `output` tokens in all rows twice: free, and constrained by a schema of 20
// fields. `lost` is 1 − constrained ÷ free tokens per second, in percent: the median of the rounds.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/grammar/bench_grammar.h"
#include "common/base/quantile.h"
#include "common/engine/engine.h"
#include "common/engine/executor.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "kernels/backend.h"
#include "kernels/token_mask.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kPrompt = 16;
// A step ends with the sampling, which this host computes in less time than this.
constexpr Duration kSampling = std::chrono::microseconds(500);

// An executor whose steps take a fixed time and are queued. A row's token is a random one that its
// mask allows; every fourth is one that ends a JSON value, where that is allowed.
class PacedExecutor final : public Executor {
 public:
  // Of the model that TraitsFor(tokenizer, rows) describes.
  PacedExecutor(OwnedArena arena, Duration step, const Tokenizer& tokenizer, int32_t rows)
      : traits_(TraitsFor(tokenizer, rows)), arena_(std::move(arena)), step_(step) {
    for (size_t i = 0; i < tokenizer.vocab_size(); ++i) {
      const std::string_view piece = tokenizer.piece(static_cast<TokenId>(i));
      if (piece == "\"" || piece == "," || piece == "}" || piece == ":") {
        endings_.push_back(static_cast<TokenId>(i));
      }
    }
  }

  static ModelTraits TraitsFor(const Tokenizer& tokenizer, int32_t rows) {
    return {.context_length = 1 << 16,
            .vocabulary = static_cast<int32_t>(tokenizer.vocab_size()),
            .max_rows = std::max(2048, rows),
            .max_logit_rows = rows,
            .kv = {.layers = 1, .kv_heads = 1, .head_dim = 8}};
  }

  const ModelTraits& traits() const override { return traits_; }
  const KvLayout& kv_layout() const override { return arena_.layout; }
  int32_t kv_blocks() const override { return arena_.view.blocks; }
  std::span<const KvArena> kv_arenas() const override { return {&arena_.arena, 1}; }
  std::string device_name() const override { return "paced"; }
  bool queues_steps() const override { return true; }

  Status Issue(const StepInput&,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch&) override {
    const Time now = std::chrono::steady_clock::now();
    const Time begin = queue_.empty() ? now : std::max(now, queue_.back());
    queue_.push_back(begin + step_);
    has_late_rows_ = false;
    return sampling.empty() ? OkStatus() : IssueSampling(sampling, out);
  }
  bool samples_later() const override { return true; }
  // As on a GPU, the host waits for the masks.
  Status IssueSampling(std::span<const SamplingRow> sampling,
                       std::span<SampledToken> out) override {
    const Time limit = queue_.back() - kSampling + kMaskWait;
    for (size_t i = 0; i < sampling.size(); ++i) {
      out[i] = {.token = Choose(sampling[i], limit), .logprob = 0, .top = {}};
      const bool late = out[i].token == kLateToken;
      late_ += late ? 1 : 0;
      has_late_rows_ |= late;
    }
    return OkStatus();
  }
  bool has_late_rows() const override { return has_late_rows_; }
  bool StepEnded() const override {
    return queue_.empty() || std::chrono::steady_clock::now() >= queue_.front();
  }
  Status Await() override {
    std::this_thread::sleep_until(queue_.front());
    queue_.pop_front();
    return OkStatus();
  }
  Status CopyBlocks(std::span<const BlockCopy>) override { return OkStatus(); }

  int64_t late() const { return late_; }

 private:
  TokenId Choose(const SamplingRow& row, Time limit) {
    const auto vocabulary = static_cast<uint64_t>(traits_.vocabulary);
    if (row.mask == nullptr) return static_cast<TokenId>(random_() % vocabulary);
    if (!row.mask->WaitUntil(row.waits_for_mask ? kNever : limit)) return kLateToken;
    const std::span<const uint32_t> allowed = row.mask->allowed();
    const auto allows = [&](uint64_t token) {
      return (allowed[token / 32] >> token % 32 & 1) != 0;
    };
    for (const TokenId ending : endings_) {
      if (random_() % 4 == 0 && allows(static_cast<uint64_t>(ending))) return ending;
    }
    const uint64_t first = random_() % vocabulary;
    for (uint64_t i = 0; i < vocabulary; ++i) {
      const uint64_t token = (first + i) % vocabulary;
      if (token % 32 == 0 && allowed[token / 32] == 0) {
        i += 31;
        continue;
      }
      if (allows(token)) return static_cast<TokenId>(token);
    }
    return kNoToken;
  }

  const ModelTraits traits_;
  const OwnedArena arena_;
  const Duration step_;
  std::vector<TokenId> endings_;
  std::deque<Time> queue_;  // the ends of the steps under way
  std::mt19937_64 random_{1};
  int64_t late_ = 0;
  bool has_late_rows_ = false;  // of the newest step
};

class Counter final : public EngineListener {
 public:
  void OnTokens(std::span<const TokenOutput> tokens) override {
    count_ += static_cast<int64_t>(tokens.size());
  }
  void OnFinished(RequestId, Epoch, const RequestTimes&) override {}
  void OnFailed(const RequestFailure& failure) override { failure_ = failure.status; }
  void OnKvChunk(const KvChunk&) override {}
  void OnKvReserved(const KvReservation&) override {}
  void OnCacheEvent(const CacheEvent&) override {}

  int64_t count() const { return count_; }
  const Status& failure() const { return failure_; }

 private:
  int64_t count_ = 0;
  Status failure_;
};

class Bench {
 public:
  using Numbers = std::map<std::string, int32_t>;

  Bench(const Numbers& numbers,
        Device& device,
        const Tokenizer& tokenizer,
        GrammarCompiler& grammars)
      : numbers_(numbers), device_(device), tokenizer_(tokenizer), grammars_(grammars) {}

  // Tokens per second of all rows. `grammar`: empty for free rows.
  StatusOr<double> Run(const std::string& grammar) {
    const int32_t rows = numbers_.at("rows");
    KvOptions kv;
    kv.blocks = rows * ((kPrompt + numbers_.at("output")) / kv.block_tokens + 2);
    BATON_ASSIGN_OR_RETURN(
        auto arena,
        OpenArena({.options = kv}, PacedExecutor::TraitsFor(tokenizer_, rows), device_));
    PacedExecutor executor(
        std::move(arena), std::chrono::microseconds(numbers_.at("step_us")), tokenizer_, rows);
    EngineOptions options;
    options.max_sequences = rows;
    options.prefix_cache = false;
    options.mask_threads = numbers_.at("mask_threads");
    Counter counter;
    const SteadyClock clock;
    BATON_ASSIGN_OR_RETURN(const auto engine,
                           Engine::Create(options, executor, counter, clock, &grammars_));
    for (int32_t row = 0; row < rows; ++row) engine->Submit(RequestOf(row, grammar));
    const Time begin = clock.Now();
    while (engine->Step() || engine->Stats().first_masks > 0) {
    }
    const double seconds = ToSeconds(clock.Now() - begin);
    BATON_RETURN_IF_ERROR(counter.failure());
    const int64_t wanted = int64_t{rows} * numbers_.at("output");
    if (counter.count() != wanted) {
      return MakeStatus(StatusCode::kInternal, "{} tokens instead of {}", counter.count(), wanted);
    }
    if (!grammar.empty()) late_ += executor.late();
    return static_cast<double>(counter.count()) / seconds;
  }

  int64_t late() const { return late_; }

 private:
  Request RequestOf(int32_t row, const std::string& grammar) const {
    Request request;
    request.id = RequestId(static_cast<uint64_t>(row) + 1);
    request.prompt_length = kPrompt;
    request.tokens = std::vector<TokenId>(kPrompt, row % 200);
    request.max_tokens = numbers_.at("output");
    request.grammar = grammar;
    if (!grammar.empty()) request.stop_tokens = tokenizer_.spec().eos;
    return request;
  }

  const Numbers& numbers_;
  Device& device_;
  const Tokenizer& tokenizer_;
  GrammarCompiler& grammars_;
  int64_t late_ = 0;
};

Status Main(int argc, char** argv) {
  Bench::Numbers numbers = {{"rows", 64},
                            {"output", 200},
                            {"step_us", 8000},
                            {"vocabulary", 128'000},
                            {"rounds", 5},
                            {"mask_threads", EngineOptions().mask_threads}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = std::string(argv[i]).substr(0, 2) == "--" ? argv[i] + 2 : argv[i];
    if (!numbers.contains(name)) {
      return InvalidArgument("{} is not an option of constrained_step_bench", argv[i]);
    }
    numbers[name] = std::atoi(argv[i + 1]);
  }
  const Tokenizer tokenizer = SyntheticVocabulary(numbers["vocabulary"], 1);
  BATON_ASSIGN_OR_RETURN(const auto backend, OpenBackend(BackendOptions()));
  BATON_ASSIGN_OR_RETURN(const auto compiler,
                         MakeGrammarCompiler(tokenizer, {.vocabulary = numbers["vocabulary"]}));
  const std::string schema = SchemaOfTwentyFields();
  BATON_RETURN_IF_ERROR(CompileSchema(*compiler, schema).status());
  BATON_ASSIGN_OR_RETURN(const std::string grammar, SpecOfSchema(schema));
  Bench bench(numbers, backend->device(), tokenizer, *compiler);
  BATON_RETURN_IF_ERROR(bench.Run("").status());  // takes the page faults
  std::vector<double> free_rates;
  std::vector<double> rates;
  std::vector<double> lost;
  for (int32_t round = 0; round < numbers["rounds"]; ++round) {
    BATON_ASSIGN_OR_RETURN(const double free_rate, bench.Run(""));
    BATON_ASSIGN_OR_RETURN(const double rate, bench.Run(grammar));
    free_rates.push_back(free_rate);
    rates.push_back(rate);
    lost.push_back(100 * (1 - rate / free_rate));
  }
  Json result(numbers);
  result["free_tok_s"] = free_rates;
  result["constrained_tok_s"] = rates;
  result["lost_percent"] = Median(lost);
  result["late_rows"] = bench.late();
  std::printf("%s\n", result.dump().c_str());
  return OkStatus();
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const baton::Status status = baton::Main(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "constrained_step_bench: %s\n", status.ToString().c_str());
  return 1;
}

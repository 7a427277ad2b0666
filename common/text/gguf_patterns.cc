#include "common/text/gguf_patterns.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace baton {
namespace {

using Kind = SplitStep::Kind;

SplitStep Published(PatternKind kind) {
  return {.kind = Kind::kPattern, .pattern = kind, .regex = ""};
}

SplitStep Regex(std::string_view regex) {
  return {.kind = Kind::kRegex, .regex = std::string(regex)};
}

// The suffixes of English contractions, and the three last alternatives of most patterns.
constexpr std::string_view kContractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
constexpr std::string_view kSpaces = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// The words of o200k (gpt-4o): `upper` and `lower` are the classes of letters.
SplitStep O200k(std::string_view upper, std::string_view lower, std::string_view symbols_end) {
  return Regex(
      fmt::format(R"([^\r\n\p{{L}}\p{{N}}]?{0}*{1}+{2}?|[^\r\n\p{{L}}\p{{N}}]?{0}+{1}*{2}?|)"
                  R"(\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+{3}*|{4})",
                  upper,
                  lower,
                  kContractions,
                  symbols_end,
                  kSpaces));
}

SplitStep Gpt4o() {
  return O200k(R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])", R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])", R"([\r\n/])");
}

// Han characters are pieces of their own, and no part of other words.
SplitStep KimiK2() {
  SplitStep words = O200k(R"((?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]))",
                          R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}]))",
                          R"([\r\n])");
  words.regex.insert(0, R"(\p{Han}+|)");
  return words;
}

// DeepSeek V3: runs of up to three digits, Han characters and kana, then the rest.
std::vector<SplitStep> DeepSeekV3() {
  return {Regex(R"(\p{N}{1,3})"),
          Regex("[一-龥\u3040-ゟ゠-ヿ]+"),
          Regex(R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
                R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
                R"(\s*[\r\n]+|\s+(?!\S)|\s+)")};
}

std::vector<SplitStep> DeepSeekCoder() {
  return {Regex(R"([\r\n])"),
          Regex(R"(\s?\p{L}+)"),
          Regex(R"(\s?\p{P}+)"),
          Regex("[一-龥ࠀ-一가-퟿]+"),
          Regex(R"(\p{N})")};
}

// Qwen 3.5: as Qwen 2, but marks belong to words.
SplitStep Qwen35() {
  return Regex(fmt::format(R"({}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}|)"
                           R"( ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{})",
                           kContractions,
                           kSpaces));
}

// Seed: as Qwen 2, but line ends do not belong to the symbols before them.
SplitStep SeedCoder() {
  return Regex(
      fmt::format(R"({}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{})",
                  kContractions,
                  kSpaces));
}

SplitStep BailingMoe() {
  return Regex(
      R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
      R"(\s*[\r\n]|\s+(?!\S)|\s+)");
}

SplitStep ExaoneMoe() {
  return Regex(
      fmt::format(R"({}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}|)"
                  R"( ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)",
                  kContractions));
}

// llama.cpp's splits for files that do not name a pattern.
std::vector<SplitStep> Unnamed() {
  return {Regex(R"([\p{P}\$\+<=>\^~\|]+)"),
          Published(PatternKind::kGpt2),
          {.kind = Kind::kDigitRuns, .regex = ""},
          Regex("[0-9][0-9][0-9]")};
}

struct Row {
  std::vector<std::string_view> names;
  GgufPattern pattern;
};

std::vector<Row> MakeRows() {
  return {
      {{"gpt-2",
        "phi-2",
        "mpt",
        "olmo",
        "jais",
        "jina-es",
        "jina-de",
        "roberta-bpe",
        "exaone4",
        "trillion",
        "granite-docling",
        "mellum"},
       {.splits = {Published(PatternKind::kGpt2)}}},
      {{"smollm",
        "starcoder",
        "refact",
        "command-r",
        "codeshell",
        "exaone",
        "minerva-7b",
        "mellum2"},
       {.splits = {Published(PatternKind::kSmolLm)}}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2", "midm-2.0"},
       {.splits = {Published(PatternKind::kLlama3)}, .ignore_merges = true, .add_bos = true}},
      {{"glm4", "chatglm-bpe", "dbrx", "smaug-bpe"}, {.splits = {Published(PatternKind::kLlama3)}}},
      {{"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "grok-2", "solar-open"},
       {.splits = {Published(PatternKind::kQwen2)}}},
      {{"qwen35"}, {.splits = {Qwen35()}}},
      {{"tekken", "pixtral"},
       {.splits = {Published(PatternKind::kTekken)}, .ignore_merges = true, .add_bos = true}},
      {{"gpt-4o", "llama4", "kanana2", "minimax-m2"}, {.splits = {Gpt4o()}}},
      {{"tiny_aya", "cohere2moe"}, {.splits = {Regex(R"(\d{1,3}(?=(?:\d{3})*\b))"), Gpt4o()}}},
      {{"kimi-k2"}, {.splits = {KimiK2()}}},
      {{"deepseek-v3", "hunyuan-dense"}, {.splits = DeepSeekV3()}},
      {{"deepseek-coder"}, {.splits = DeepSeekCoder()}},
      {{"seed-coder"}, {.splits = {SeedCoder()}}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, {.splits = {BailingMoe()}}},
      {{"exaone-moe"}, {.splits = {ExaoneMoe()}}},
      {{"", "default"}, {.splits = Unnamed()}},
  };
}

}  // namespace

StatusOr<GgufPattern> GgufPatternOf(std::string_view pre) {
  static const std::vector<Row> rows = MakeRows();
  std::vector<std::string_view> known;
  for (const Row& row : rows) {
    if (std::ranges::count(row.names, pre) > 0) return row.pattern;
    std::ranges::copy_if(
        row.names, std::back_inserter(known), [](auto name) { return !name.empty(); });
  }
  return absl::UnimplementedError(
      fmt::format("tokenizer.ggml.pre is '{}', which is not supported; it must be one of {}",
                  pre,
                  fmt::join(known, ", ")));
}

}  // namespace baton

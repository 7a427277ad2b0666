#include "bench/grammar/bench_grammar.h"

#include <future>
#include <memory>
#include <random>
#include <unordered_set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/grammar/grammar_spec.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kMinSize = 2048;
constexpr const char* kEnd = "</s>";

// Makes pieces until there are enough of them; each occurs once.
class PieceMaker {
 public:
  PieceMaker(size_t size, uint64_t seed) : size_(size), random_(seed) {
    for (int byte = 0; byte < 256; ++byte) Add(std::string(1, static_cast<char>(byte)));
  }

  std::vector<Piece> Make() {
    AddPunctuation();
    for (int number = 0; number < 1000; ++number) {
      if (number < 100) Add(fmt::format("{:02d}", number));
      Add(fmt::format("{:03d}", number));
    }
    while (pieces_.size() + 1 < size_) {
      Add(random_() % 100 < 15 ? OtherScript() : Word());
    }
    pieces_.push_back({kEnd, PieceKind::kControl});
    return std::move(pieces_);
  }

 private:
  void Add(const std::string& bytes) {
    if (pieces_.size() + 1 >= size_ || !known_.insert(bytes).second) return;
    pieces_.push_back({bytes, PieceKind::kNormal});
  }

  void AddPunctuation() {
    const char* const joined[] = {
        "{\"",   "\":",     "\": ", "\",", "\", \"", "\"}",  "\"},", "},", "}]", "[]",    "[{\"",
        "\"]",   "],",      "]}",   ": ",  ", ",     ": \"", ", \"", "}}", "{}", "\":\"", "\",\"",
        "\": [", "\": {\"", "://",  "\\n", "\\\"",   "\\u",  "...",  "--", "==", "()",    "();"};
    for (const char* text : joined) Add(text);
    for (size_t spaces = 2; spaces <= 32; ++spaces) {
      Add(std::string(spaces, ' '));
      Add("\n" + std::string(spaces - 2, ' '));
    }
  }

  template <size_t N>
  const char* Any(const char* const (&list)[N]) {
    return list[random_() % N];
  }

  std::string Word() {
    static constexpr const char* kBegins[] = {
        "b", "c",  "d",  "f",  "g",  "h",  "k",  "l",  "m",  "n",  "p",  "r", "s", "t",  "v",
        "w", "st", "tr", "pr", "ch", "sh", "th", "pl", "gr", "br", "cl", "",  "",  "qu", "j"};
    static constexpr const char* kMiddles[] = {
        "a", "e", "i", "o", "u", "ea", "ou", "io", "ai", "er", "or", "an", "en", "in", "on", "ar"};
    static constexpr const char* kEnds[] = {
        "", "", "", "n", "s", "t", "d", "l", "r", "ng", "nt", "st", "ss", "ck", "m", "ly"};
    std::string word;
    const size_t syllables = 1 + random_() % 4;
    for (size_t i = 0; i < syllables; ++i) {
      word += Any(kBegins);
      word += Any(kMiddles);
      word += Any(kEnds);
    }
    const uint64_t form = random_() % 10;
    if (form % 5 == 0) word[0] = static_cast<char>(word[0] - 'a' + 'A');
    if (form < 6) word = " " + word;
    if (form == 9) word = "_" + word;
    return word;
  }

  // One to three characters of one script.
  std::string OtherScript() {
    static constexpr std::pair<char32_t, char32_t> kScripts[] = {
        {0x00C0, 0x0180}, {0x0400, 0x0460}, {0x0600, 0x0650}, {0x3040, 0x3100}, {0x4E00, 0x9FA0}};
    const auto& [begin, end] = kScripts[random_() % std::size(kScripts)];
    std::string text = random_() % 2 == 0 ? " " : "";
    const size_t characters = 1 + random_() % 3;
    for (size_t i = 0; i < characters; ++i) {
      AppendUtf8(text, begin + static_cast<char32_t>(random_() % (end - begin)));
    }
    return text;
  }

  const size_t size_;
  std::mt19937_64 random_;
  std::vector<Piece> pieces_;
  std::unordered_set<std::string> known_;
};

}  // namespace

Tokenizer SyntheticVocabulary(int32_t size, uint64_t seed) {
  BATON_CHECK(size >= kMinSize, "a vocabulary of {} tokens; the least is {}", size, kMinSize);
  TokenizerSpec spec;
  spec.pieces = PieceMaker(static_cast<size_t>(size), seed).Make();
  spec.eos = {static_cast<TokenId>(spec.pieces.size() - 1)};
  return Tokenizer::Create(std::move(spec)).value();
}

std::string SchemaOfTwentyFields() {
  const Json types[] = {{{"type", "string"}},
                        {{"type", "integer"}, {"minimum", 0}},
                        {{"type", "number"}},
                        {{"type", "boolean"}},
                        {{"enum", {"red", "green", "blue", "none"}}},
                        {{"type", "string"}, {"format", "date-time"}},
                        {{"type", "array"}, {"items", {{"type", "integer"}}}},
                        {{"type", {"string", "null"}}},
                        {{"type", "string"}, {"pattern", "^[A-Z]{2}[0-9]{3}$"}},
                        {{"type", "object"},
                         {"properties", {{"x", {{"type", "number"}}}, {"y", {{"type", "number"}}}}},
                         {"required", {"x", "y"}}}};
  Json object = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
  for (int field = 0; field < 20; ++field) {
    const std::string name = fmt::format("field_{}", field);
    object["properties"][name] = types[static_cast<size_t>(field) % std::size(types)];
    object["required"].push_back(name);
  }
  return Json{{"type", "array"}, {"items", std::move(object)}, {"minItems", 8}}.dump();
}

StatusOr<std::string> SpecOfSchema(const std::string& schema) {
  BATON_ASSIGN_OR_RETURN(const Json json, ParseOrderedJson("schema", schema));
  BATON_ASSIGN_OR_RETURN(GrammarPart part, JsonSchemaPart(json));
  return GrammarSpec(std::move(part));
}

CompiledGrammar CompileSchema(GrammarCompiler& compiler, const std::string& schema) {
  BATON_ASSIGN_OR_RETURN(const std::string spec, SpecOfSchema(schema));
  std::promise<CompiledGrammar> done;
  const auto wanted = std::make_shared<const bool>(true);
  compiler.Compile(
      spec, 0, wanted, [&](CompiledGrammar grammar) { done.set_value(std::move(grammar)); });
  return done.get_future().get();
}

}  // namespace baton

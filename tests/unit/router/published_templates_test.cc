// Which chat templates of published models Baton knows, as router/README.md says. The templates are
// those of llama.cpp, which `./dev templates` downloads.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/mapped_file.h"
#include "common/grammar/call_grammar.h"
#include "common/grammar/schema_check.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "router/text/chat_formats.h"
#include "tests/support/byte_tokenizer.h"

namespace baton::router {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kReadme = "router/README.md";
constexpr std::string_view kBegin = "<!-- made by published_templates_test: begin -->\n";
constexpr std::string_view kEnd = "<!-- made by published_templates_test: end -->\n";
constexpr size_t kCell = 140;  // characters of a cell

std::map<std::string, std::string> Templates() {
  std::map<std::string, std::string> templates;
  if (!fs::is_directory(BATON_TEST_TEMPLATES)) return templates;
  for (const auto& file : fs::directory_iterator(BATON_TEST_TEMPLATES)) {
    if (file.path().extension() != ".jinja") continue;
    templates.emplace(file.path().stem(), ReadFile(file.path()).value());
  }
  return templates;
}

// A table with rows for each key. Names that do not fit into one cell go on in the next row.
std::string Table(
    const std::map<std::pair<std::string, std::string>, std::vector<std::string>>& rows) {
  std::string table = "| calls | reasoning | templates |\n|---|---|---|\n";
  for (const auto& [key, names] : rows) {
    std::string cell;
    const auto end_row = [&] {
      table += fmt::format("| {} | {} | {} |\n", key.first, key.second, cell);
      cell.clear();
    };
    for (const std::string& name : names) {
      if (!cell.empty() && cell.size() + name.size() + 2 > kCell) end_row();
      cell += (cell.empty() ? "" : ", ") + name;
    }
    end_row();
  }
  return table;
}

std::string InOneCell(std::string text) {
  for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) {
    text.replace(at, 1, "\\|");
  }
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at)) {
    text.replace(at, 1, " ");
  }
  return text;
}

std::string Document() {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> rows;
  std::string unknown = "| template | prints calls as |\n|---|---|\n";
  std::vector<std::string> without;
  const Tokenizer tokenizer = BytesAnd({});
  for (const auto& [name, source] : Templates()) {
    const auto chat_template = ChatTemplate::Parse(source);
    EXPECT_TRUE(chat_template.ok()) << name << ": " << chat_template.status();
    if (!chat_template.ok()) continue;
    const ChatFormats formats = FindChatFormats(*chat_template, tokenizer);
    if (formats.calls != ToolCallFormat::kNone) {
      rows[{std::string(NameOf(formats.calls)), std::string(NameOf(formats.reasoning))}].push_back(
          name);
    } else if (formats.unknown_call.empty()) {
      without.push_back(name);
    } else {
      unknown += fmt::format("| {} | {} |\n", name, InOneCell(formats.unknown_call));
    }
  }
  return fmt::format(
      "{}\nCalls of these are refused, with what the template prints:\n\n{}\nThese print no calls: "
      "{}.\n",
      Table(rows),
      unknown,
      fmt::join(without, ", "));
}

TEST(PublishedTemplates, AreKnownAsTheReadmeSays) {
  ASSERT_GE(Templates().size(), 60U)
      << "there are no chat templates in " << BATON_TEST_TEMPLATES << "; run ./dev templates";
  std::string readme = ReadFile(kReadme).value();
  const size_t begin = readme.find(kBegin);
  const size_t end = readme.find(kEnd);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const size_t from = begin + kBegin.size();
  const std::string document = Document();
  if (std::getenv("BATON_WRITE_README") != nullptr) {
    readme.replace(from, end - from, document);
    std::ofstream(kReadme) << readme;
    return;
  }
  EXPECT_EQ(readme.substr(from, end - from), document)
      << "if this change is meant, run this test with BATON_WRITE_README=1";
}

// A forced call is what the template of the model prints for it. `begin` and `end` are around the
// calls.
void ExpectForcedCallsArePrinted(const char* name,
                                 ToolCallFormat format,
                                 std::string_view begin,
                                 std::string_view end) {
  const Json parameters = Json::parse(R"({"type": "object", "required": ["text", "deep"],
      "properties": {"text": {"type": "string"}, "count": {"type": "integer"},
          "Flag": {"type": "boolean"}, "ratio": {"type": "number", "minimum": 0, "maximum": 1},
          "list": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
          "unit": {"enum": ["C", "F"]},
          "deep": {"type": "object", "properties": {"b": {"type": "string"},
                   "a": {"type": "array", "items": {"$ref": "#"}}}}}})");
  const Json arguments = Json::parse(R"({"text": "a \"b\"\n<c> é", "count": 70, "Flag": true,
      "ratio": 0.25, "list": [[1, 2], [3]], "unit": "F",
      "deep": {"b": "", "a": [{"text": "x", "deep": {"b": "y"}}]}})");
  const Json call = {{"type", "function"},
                     {"id", "call_1"},
                     {"function", {{"name", "f"}, {"arguments", arguments}}}};
  const Json chat = {
      {"messages",
       {{{"role", "user"}, {"content", "Hi"}},
        {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call, call})}}}},
      {"add_generation_prompt", false},
      {"bos_token", ""},
      {"eos_token", ""}};
  const auto chat_template = ChatTemplate::Parse(Templates().at(name));
  ASSERT_TRUE(chat_template.ok());
  const auto printed = chat_template->Render(chat, RenderOptions());
  ASSERT_TRUE(printed.ok()) << printed.status();
  const size_t from = printed->find(begin);
  const size_t to = printed->rfind(end);
  ASSERT_NE(from, std::string::npos) << *printed;
  ASSERT_NE(to, std::string::npos) << *printed;
  const std::string calls = printed->substr(from, to + end.size() - from);

  const Tokenizer tokenizer = BytesAnd({});
  const auto vocabulary = static_cast<int32_t>(tokenizer.vocab_size());
  const auto compiler = MakeGrammarCompiler(tokenizer, {.vocabulary = vocabulary}).value();
  const auto checked = CheckedSchema(parameters, GrammarLimits(), SchemaUse::kCall);
  const auto part = CallsPart({format}, {{"f", checked.value(), parameters}}, /*one=*/false);
  ASSERT_TRUE(part.ok()) << part.status();
  std::promise<CompiledGrammar> done;
  const auto wanted = std::make_shared<const bool>(true);
  compiler->Compile(GrammarSpec(*part), 0, wanted, [&](CompiledGrammar grammar) {
    done.set_value(std::move(grammar));
  });
  const CompiledGrammar grammar = done.get_future().get();
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const auto matcher = (*grammar)->NewMatcher(tokenizer.spec().eos);
  for (size_t i = 0; i < calls.size(); ++i) {
    ASSERT_TRUE(matcher->Accept(static_cast<uint8_t>(calls[i]))) << calls.substr(0, i + 1);
  }
  EXPECT_TRUE(matcher->Accept(tokenizer.spec().eos[0])) << calls;
}

TEST(PublishedTemplates, PrintTheCallsThatAreForced) {
  for (const char* name : {"google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved"}) {
    ExpectForcedCallsArePrinted(name, ToolCallFormat::kGemma, "<|tool_call>", "<tool_call|>");
  }
  ExpectForcedCallsArePrinted("MiniMax-M3",
                              ToolCallFormat::kMiniMaxM3,
                              "]<]minimax[>[<tool_call>",
                              "]<]minimax[>[</tool_call>");
}

}  // namespace
}  // namespace baton::router

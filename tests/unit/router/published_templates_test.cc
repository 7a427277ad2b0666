// Which chat templates of published models Baton knows, as router/README.md says. The templates are
// those of llama.cpp, which `./dev templates` downloads.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "common/base/mapped_file.h"
#include "router/text/chat_formats.h"
#include "tests/support/byte_tokenizer.h"

namespace baton::router {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReadme = BATON_TEST_ROUTER "/README.md";
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

}  // namespace
}  // namespace baton::router

#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace baton {

// The names of the golden outputs of chat models: the files of tests/data/chat_format, one for each
// format. For tests that are declared with DATA.
inline std::vector<std::string> ChatGoldens() {
  std::vector<std::string> names;
  const std::filesystem::path folder = std::filesystem::path(BATON_TEST_DATA) / "chat_format";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() == ".json") names.push_back(file.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace baton

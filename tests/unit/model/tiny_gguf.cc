#include "tests/unit/model/tiny_gguf.h"

#include <cstdint>
#include <filesystem>
#include <string_view>

#include <absl/strings/escaping.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/mapped_file.h"
#include "tests/support/fnv1a.h"
#include "tests/support/temporary_folder.h"

namespace baton {
namespace {

constexpr size_t kMaxBytes = size_t{16} << 20;
constexpr std::string_view kTiny = BATON_TEST_DATA "/tiny/";

}  // namespace

std::string TinyGgufBytes(const std::string& name) {
  const std::string whole = std::string(kTiny) + "gguf/" + name + ".gguf";
  if (std::filesystem::exists(whole)) return ReadFile(whole, kMaxBytes).value();
  const auto recipe = nlohmann::json::parse(
      ReadFile(std::string(kTiny) + "gguf/" + name + ".recipe", kMaxBytes).value());
  const std::string source =
      ReadFile(std::string(kTiny) + name + "/model.safetensors", kMaxBytes).value();
  std::string literals;
  BATON_CHECK(absl::Base64Unescape(recipe["literals"].get<std::string>(), &literals), "{}", name);
  std::string bytes;
  size_t written_out = 0;
  for (const auto& run : recipe["runs"]) {
    const auto from = run[0].get<int64_t>();
    const auto size = run[1].get<size_t>();
    bytes += from < 0 ? literals.substr(written_out, size)
                      : source.substr(static_cast<size_t>(from), size);
    if (from < 0) written_out += size;
  }
  BATON_CHECK(fmt::format("{:016x}", Fnv1a(bytes)) == recipe["fnv1a"],
              "{}.recipe does not fit its model.safetensors",
              name);
  return bytes;
}

std::string TinyModelPath(const std::string& name) {
  const std::filesystem::path path = name;
  if (path.extension() != ".gguf") return std::string(kTiny) + name;
  static const TemporaryFolder folder;
  return folder.Write(path.filename().string(), TinyGgufBytes(path.stem().string()));
}

}  // namespace baton

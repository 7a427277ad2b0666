#include "tests/integration/router_cluster.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/text/byte_alphabet.h"
#include "common/text/utf8.h"

// A router, two prefill and two decode workers in one process, on tiny real models, against the
// same engine serving whole requests by itself: the tokens must be the same.
namespace baton {
namespace {

// A copy of a tiny model with a tokenizer: one token a byte.
class ModelFolder final {
 public:
  explicit ModelFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("baton_cluster_" + name + "_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
    const std::filesystem::path source = std::filesystem::path(BATON_TEST_DATA) / "tiny" / name;
    for (const auto& file : std::filesystem::directory_iterator(source)) {
      std::filesystem::copy_file(file.path(),
                                 path_ / file.path().filename(),
                                 std::filesystem::copy_options::overwrite_existing);
    }
    nlohmann::json tokenizer = {{"version", "1.0"},
                                {"added_tokens", nlohmann::json::array()},
                                {"normalizer", nullptr},
                                {"pre_tokenizer",
                                 {{"type", "ByteLevel"},
                                  {"add_prefix_space", false},
                                  {"trim_offsets", true},
                                  {"use_regex", true}}},
                                {"post_processor", nullptr},
                                {"decoder",
                                 {{"type", "ByteLevel"},
                                  {"add_prefix_space", true},
                                  {"trim_offsets", true},
                                  {"use_regex", true}}},
                                {"model", {{"type", "BPE"}, {"vocab", nlohmann::json::object()}}}};
    tokenizer["model"]["merges"] = nlohmann::json::array();
    for (int byte = 0; byte < 256; ++byte) {
      std::string piece;
      AppendUtf8(piece, PrintableOfByte(static_cast<uint8_t>(byte)));
      tokenizer["model"]["vocab"][piece] = byte;
    }
    std::ofstream(path_ / "tokenizer.json") << tokenizer.dump();
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  const std::filesystem::path path_;
};

constexpr int kRequests = 20;

class RouterCluster : public ::testing::TestWithParam<const char*> {};

TEST_P(RouterCluster, DisaggregatedEqualsUnified) {
  const ModelFolder model(GetParam());
  std::vector<Answer> unified;
  {
    Cluster alone(model.path(), 0, 1, {});
    unified = alone.AskAll(kRequests);
    EXPECT_TRUE(unified[0].timings.transport().empty());
    alone.ExpectNoLeaks();
  }
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {"transfer.transports=[shm]"},
           {"transfer.transports=[tcp]", "engine.max_step_tokens=16"},
           {"engine.max_step_tokens=50", "engine.kv_blocks=40"},  // few blocks: preemption
           {"engine.max_step_tokens=8", "engine.prefix_cache=false"}}) {
    SCOPED_TRACE(overrides.front());
    Cluster cluster(model.path(), 2, 2, overrides);
    const std::vector<Answer> first = cluster.AskAll(kRequests);
    ExpectSame(first, unified);
    EXPECT_FALSE(first[2].timings.transport().empty()) << "nothing was handed over";
    ExpectSame(cluster.AskAll(kRequests), unified);  // now with prefix hits
    cluster.ExpectNoLeaks();
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         RouterCluster,
                         ::testing::Values("llama_gqa", "mistral_window", "qwen3_moe"));

}  // namespace
}  // namespace baton

#include "tests/fakes/byte_model.h"

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/text/byte_alphabet.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

// A token for each byte, then special tokens up to `ids` ids.
nlohmann::json ByteTokenizer(int ids) {
  const nlohmann::json byte_level = {{"type", "ByteLevel"},
                                     {"add_prefix_space", false},
                                     {"trim_offsets", true},
                                     {"use_regex", true}};
  nlohmann::json tokenizer = {{"version", "1.0"},
                              {"added_tokens", nlohmann::json::array()},
                              {"normalizer", nullptr},
                              {"pre_tokenizer", byte_level},
                              {"post_processor", nullptr},
                              {"decoder", byte_level},
                              {"model", {{"type", "BPE"}, {"vocab", nlohmann::json::object()}}}};
  tokenizer["model"]["merges"] = nlohmann::json::array();
  for (int byte = 0; byte < 256; ++byte) {
    std::string piece;
    AppendUtf8(piece, PrintableOfByte(static_cast<uint8_t>(byte)));
    tokenizer["model"]["vocab"][piece] = byte;
  }
  for (int id = 256; id < ids; ++id) {
    tokenizer["added_tokens"].push_back({{"id", id},
                                         {"content", "<|" + std::to_string(id) + "|>"},
                                         {"special", true},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"single_word", false},
                                         {"normalized", false}});
  }
  return tokenizer;
}

}  // namespace

ByteModel::ByteModel(const std::string& name) {
  static std::atomic<int> made{0};
  path_ = std::filesystem::temp_directory_path() /
          ("baton_" + name + "_" + std::to_string(::getpid()) + "_" + std::to_string(made++));
  std::filesystem::create_directories(path_);
}

void ByteModel::WriteTokenizer(int ids) const {
  std::ofstream(path_ / "tokenizer.json") << ByteTokenizer(ids).dump();
}

ByteModel::ByteModel(ByteModel&& other) noexcept : path_(std::exchange(other.path_, {})) {}

ByteModel::~ByteModel() {
  if (!path_.empty()) std::filesystem::remove_all(path_);
}

ByteModel ByteModel::From(const std::string& source) {
  ByteModel model(std::filesystem::path(source).filename());
  for (const auto& file : std::filesystem::directory_iterator(source)) {
    std::filesystem::copy_file(file.path(), model.path_ / file.path().filename());
  }
  std::ifstream config(model.path_ / "config.json");
  model.WriteTokenizer(config ? nlohmann::json::parse(config).value("vocab_size", 256) : 256);
  return model;
}

ByteModel ByteModel::WithoutWeights(int32_t context_length, int32_t vocabulary) {
  ByteModel model("router_only");
  model.WriteTokenizer(256);
  const nlohmann::json config = {{"model_type", "llama"},
                                 {"architectures", {"LlamaForCausalLM"}},
                                 {"hidden_act", "silu"},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 64},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"num_hidden_layers", 1},
                                 {"rms_norm_eps", 1e-5},
                                 {"rope_theta", 10000.0},
                                 {"max_position_embeddings", context_length},
                                 {"tie_word_embeddings", true},
                                 {"vocab_size", vocabulary}};
  std::ofstream(model.path_ / "config.json") << config.dump();
  const nlohmann::json text = {
      {"chat_template", "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}{% endfor %}"}};
  std::ofstream(model.path_ / "tokenizer_config.json") << text.dump();
  return model;
}

}  // namespace baton

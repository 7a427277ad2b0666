#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace baton {

// A Hugging Face directory whose tokenizer has one token for each byte, so that a test can treat
// text and tokens alike. The destructor removes the directory.
class ByteModel final {
 public:
  // Uses the configuration and the weights of the model in folder `source`. Its further ids are
  // special tokens.
  static ByteModel From(const std::string& source);
  // Contains only what a router reads: the configuration of a small model, and a chat template that
  // prints each message as <role>content.
  static ByteModel WithoutWeights(int32_t context_length, int32_t vocabulary = 256);

  ByteModel(ByteModel&& other) noexcept;
  ~ByteModel();

  std::string path() const { return path_.string(); }

 private:
  explicit ByteModel(const std::string& name);
  void WriteTokenizer(int ids) const;

  std::filesystem::path path_;
};

}  // namespace baton

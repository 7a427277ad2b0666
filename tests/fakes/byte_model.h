#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace baton {

// A Hugging Face directory whose tokenizer has one token a byte, removed at the end: text and
// tokens are then the same thing to a test.
class ByteModel final {
 public:
  // With the configuration and the weights of the model in folder `source`.
  static ByteModel From(const std::string& source);
  // Only what a router reads: a configuration of a small model, and a template that prints each
  // message as <role>content.
  static ByteModel WithoutWeights(int32_t context_length, int32_t vocabulary = 256);

  ByteModel(ByteModel&& other) noexcept;
  ~ByteModel();

  std::string path() const { return path_.string(); }

 private:
  explicit ByteModel(const std::string& name);

  std::filesystem::path path_;
};

}  // namespace baton

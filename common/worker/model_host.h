#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/engine/decoder_executor.h"
#include "common/engine/model_traits.h"
#include "common/model/decoder.h"
#include "common/model/open_model.h"
#include "kernels/backend.h"

namespace baton {

struct ModelHostOptions {
  std::string path;
  std::string name;  // empty: the name that the model file gives
  OpenOptions open;
  BackendOptions backend;      // threads 0: one per processor that the process may use
  int ranks_on_host = 1;       // ranks that share the processors of this host
  int32_t context_length = 0;  // in tokens; 0: the model's own
  int32_t max_step_tokens = 512;
  int32_t max_sequences = 256;
  bool fp8_kv = false;   // see DecoderLimits
  Bf16Layers bf16 = {};  // see DecoderLimits
  StageBalance balance = StageBalance::kDecodes;
};

// A model in the memory of its device, ready to run: backend, weights and decoder. An engine runs
// on the executor, which only one thread may use at a time.
class ModelHost final {
 public:
  // Loads the weights, which may take minutes; logs the progress. Errors: those of OpenModel,
  // CountTokenIds, OpenBackend and Decoder::Load; InvalidArgument when `context_length` exceeds the
  // model's. A model without a readable tokenizer is loaded, too; then every row of its head is a
  // token.
  static StatusOr<std::unique_ptr<ModelHost>> Open(const ModelHostOptions& options);

  const std::string& name() const { return name_; }
  // Hashes of the model's spec (ShapeHash) and of its tokenizer (TokenizerHash; zero when it has
  // no readable tokenizer).
  const Hash128& shape() const { return shape_; }
  const Hash128& tokenizer() const { return tokenizer_; }
  // Decoder::weights_hash.
  const Hash128& weights_hash() const { return decoder_->weights_hash(); }
  const ModelTraits& traits() const { return traits_; }
  std::string device_name() const { return backend_->device().name(); }
  // DecoderExecutor::Create with the tokens of the tokenizer: `options.token_ids` is ignored. This
  // object outlives the executor.
  StatusOr<std::unique_ptr<DecoderExecutor>> MakeExecutor(DecoderExecutor::Options options);
  // The interface through which KV transports copy device memory. Null for host memory.
  Dma* dma() { return backend_->dma(); }

 private:
  ModelHost() = default;

  std::string name_;
  Hash128 shape_;
  Hash128 tokenizer_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Decoder> decoder_;
  ModelTraits traits_;
};

}  // namespace baton

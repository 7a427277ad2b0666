#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace baton {

// Whether a device runs the model, and how it may store weights and KV there.
struct DeviceCheck {
  std::string device;        // "cpu", "cuda:0" or an architecture such as "sm_90"
  std::string description;   // the instruction set, or the card
  std::string refused = {};  // why it does not run the model; empty: it runs it
  std::vector<std::string> weights = {};
  std::vector<std::string> kv = {};
};

// What `baton model check` tells of a model. What cannot be read is empty or 0.
struct ModelCheck {
  std::string path;
  std::string format;   // "GGUF" or "Hugging Face"
  std::string family;   // model_type
  std::string tensors;  // their number and types
  size_t weight_bytes = 0;
  int64_t parameters = 0;
  int32_t layers = 0;
  int32_t context_length = 0;
  size_t kv_bytes_per_token = 0;  // at 16 bits
  size_t state_bytes = 0;         // of a sequence
  // The degrees that divide the model: by gather (CPUs, and GPUs in deterministic mode) and by
  // reduce (other GPUs).
  std::vector<int32_t> tensor_parallel;
  std::vector<int32_t> tensor_parallel_by_reduce;
  int32_t max_stages = 0;     // of pipeline parallelism
  int32_t token_ids = 0;      // of the tokenizer
  std::string chat_template;  // where it is; empty: there is none
  std::string tool_calls;     // formats: the router settings tool_call_format and reasoning_format
  std::string reasoning;
  std::vector<DeviceCheck> devices;
  std::vector<std::string> problems;  // why no cluster serves the model; empty: it runs
  std::vector<std::string> notes;     // what works less well, or is not read
  bool runs() const { return problems.empty(); }
};

// Checks the files of the model at `path` as routers and workers do at their start, without reading
// weights: names, types and shapes only. `cuda_library`: BackendOptions.
ModelCheck CheckModelFiles(const std::string& path, const std::string& cuda_library);

// For people, on one screen; and as JSON.
std::string TextOf(const ModelCheck& check);
std::string JsonOf(const ModelCheck& check);

}  // namespace baton

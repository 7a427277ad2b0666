#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/model_family.h"

namespace baton {

enum class GpuSupport : uint8_t {
  kNone,      // the CUDA backend lacks what the family needs
  kRuns,      // it runs there; nobody measured how fast
  kMeasured,  // bench/results has figures of a model of this family
};

// What users should know of a family.
struct FamilyEntry {
  ModelFamily family = ModelFamily::kLlama;
  GpuSupport gpu = GpuSupport::kNone;
  std::string_view models = "";        // published models, for example
  std::string_view blocks = "";        // how a layer differs from Llama's
  std::string_view gguf = "";          // architectures of its GGUF files; empty: they are not read
  std::string_view golden = "";        // folder of tests/data/tiny with the outputs of transformers
  std::string_view real_weights = "";  // published weights that tests run; empty: none
};

// Each family once.
std::span<const FamilyEntry> FamilyList();

// The list as a table, its header first.
std::vector<std::vector<std::string>> FamilyTable();

// FamilyTable in Markdown, as common/model/README.md has it.
std::string FamilyTableInMarkdown();

}  // namespace baton

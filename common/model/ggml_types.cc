#include "common/model/ggml_types.h"

#include <fmt/format.h>

namespace baton {
namespace {

struct GgmlType {
  uint32_t number;
  std::string_view name;
  std::optional<DType> dtype = std::nullopt;  // none: Baton does not read it
};

constexpr GgmlType kTypes[] = {
    {0, "F32", DType::kF32},
    {1, "F16", DType::kF16},
    {30, "BF16", DType::kBF16},
    {8, "Q8_0", DType::kQ8_0},
    {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},
    {6, "Q5_0", DType::kQ5_0},
    {7, "Q5_1", DType::kQ5_1},
    {10, "Q2_K", DType::kQ2_K},
    {11, "Q3_K", DType::kQ3_K},
    {12, "Q4_K", DType::kQ4_K},
    {13, "Q5_K", DType::kQ5_K},
    {14, "Q6_K", DType::kQ6_K},
    {20, "IQ4_NL", DType::kIQ4_NL},
    {23, "IQ4_XS", DType::kIQ4_XS},
    {39, "MXFP4", DType::kMxfp4},
    {9, "Q8_1"},
    {15, "Q8_K"},
    {16, "IQ2_XXS"},
    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},
    {19, "IQ1_S"},
    {21, "IQ3_S"},
    {22, "IQ2_S"},
    {24, "I8"},
    {25, "I16"},
    {26, "I32"},
    {27, "I64"},
    {28, "F64"},
    {29, "IQ1_M"},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {40, "NVFP4"},
    {41, "Q1_0"},
};

const GgmlType* Find(uint32_t number) {
  for (const GgmlType& type : kTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

}  // namespace

std::optional<DType> TypeOfGgml(uint32_t type) {
  const GgmlType* const found = Find(type);
  return found == nullptr ? std::nullopt : found->dtype;
}

std::string NameOfGgmlType(uint32_t type) {
  const GgmlType* const found = Find(type);
  if (found == nullptr) return fmt::format("ggml type {}", type);
  return fmt::format("ggml type {} ({})", type, found->name);
}

std::string ReadableGgmlTypes() {
  std::string names;
  for (const GgmlType& type : kTypes) {
    if (type.dtype) names += fmt::format("{}{}", names.empty() ? "" : " ", type.name);
  }
  return names;
}

}  // namespace baton

#include "common/model/quantized_tensors.h"

#include <string_view>
#include <utility>

namespace baton {
namespace {

using Layout = QuantizedTensors::Layout;

constexpr std::string_view kWeight = ".weight";
// The numbers that are beside these tensors.
constexpr std::pair<std::string_view, std::string_view> kNumbersOfScales[] = {
    {"_scales", "_blocks"},
    {".scales", ".qweight"},
    {".weight_shape", ".weight_packed"},
    {".weight_global_scale", ".weight_packed"},
};

}  // namespace

bool IsNumberOfByte(const FileTensor& tensor) {
  return tensor.other_type.empty() && (tensor.dtype == DType::kI8 || tensor.dtype == DType::kFp8);
}

std::vector<const FileTensor*> QuantizedTensors::All() const {
  std::vector<const FileTensor*> all = {numbers, scales, zeros, group_indices, global_scale};
  all.insert(all.end(), unused.begin(), unused.end());
  std::erase(all, nullptr);
  return all;
}

StatusOr<std::optional<QuantizedTensors>> FindQuantized(const std::string& name,
                                                        const QuantizationConfig& quantization,
                                                        const TensorLookup& lookup) {
  const bool ends = name.ends_with(kWeight);
  const std::string module = ends ? name.substr(0, name.size() - kWeight.size()) : name;
  const auto with = [&](std::string_view ending) {
    return lookup(fmt::format("{}{}", module, ending));
  };
  const auto need = [&](std::string_view ending) -> StatusOr<const FileTensor*> {
    if (const FileTensor* const tensor = with(ending); tensor != nullptr) return tensor;
    return MakeStatus(StatusCode::kNotFound,
                      "tensor {}{} is missing beside others of {}",
                      module,
                      ending,
                      module);
  };
  QuantizedTensors found;
  if ((found.numbers = with("_blocks")) != nullptr) {
    found.layout = Layout::kMxfp4;
    BATON_ASSIGN_OR_RETURN(found.scales, need("_scales"));
    return found;
  }
  if ((found.numbers = with(".qweight")) != nullptr) {
    found.layout = quantization.method == QuantMethod::kAwq ? Layout::kAwq : Layout::kGptq;
    BATON_ASSIGN_OR_RETURN(found.scales, need(".scales"));
    BATON_ASSIGN_OR_RETURN(found.zeros, need(".qzeros"));
    found.group_indices = with(".g_idx");
    if (quantization.act_order) {
      BATON_ASSIGN_OR_RETURN(found.group_indices, need(".g_idx"));
    }
    return found;
  }
  if ((found.numbers = with(".weight_packed")) != nullptr) {
    const bool floats = found.numbers->other_type == "U8";
    found.layout = floats ? Layout::kNvfp4 : Layout::kPacked;
    BATON_ASSIGN_OR_RETURN(found.scales, need(".weight_scale"));
    if (floats) {
      BATON_ASSIGN_OR_RETURN(found.global_scale, need(".weight_global_scale"));
    }
    found.zeros = with(".weight_zero_point");
    found.group_indices = with(".weight_g_idx");
    if (quantization.act_order) {
      BATON_ASSIGN_OR_RETURN(found.group_indices, need(".weight_g_idx"));
    }
    found.unused = {with(".weight_shape"), with(".input_global_scale")};
    return found;
  }
  found.numbers = lookup(name);
  if (found.numbers == nullptr) {
    for (const auto& [scales, numbers] : kNumbersOfScales) {
      if (with(scales) != nullptr) return need(numbers).status();
    }
  }
  if (found.numbers == nullptr || !IsNumberOfByte(*found.numbers)) {
    return std::optional<QuantizedTensors>();
  }
  found.scales = with(".weight_scale");
  if (found.scales == nullptr) {
    const bool is_fp8 = quantization.method == QuantMethod::kFp8;
    BATON_ASSIGN_OR_RETURN(found.scales, need(is_fp8 ? ".weight_scale_inv" : ".weight_scale"));
  }
  found.zeros = with(".weight_zero_point");
  found.unused = {with(".input_scale"), with(".input_zero_point")};
  return found;
}

}  // namespace baton

#pragma once

#include <array>
#include <span>

#include "kernels/dtype.h"

namespace baton {

// The types in which model files store matrices. Those after the first three store blocks of
// numbers with common scales.
inline constexpr std::array kWeightTypes = {DType::kF32,
                                            DType::kF16,
                                            DType::kBF16,
                                            DType::kQ8_0,
                                            DType::kQ4_0,
                                            DType::kQ4_1,
                                            DType::kQ5_0,
                                            DType::kQ5_1,
                                            DType::kQ4_K,
                                            DType::kQ5_K,
                                            DType::kQ6_K,
                                            DType::kIQ4_NL,
                                            DType::kIQ4_XS,
                                            DType::kQ2_K,
                                            DType::kQ3_K,
                                            DType::kMxfp4};
inline constexpr std::span kBlockTypes = std::span(kWeightTypes).subspan<3>();

}  // namespace baton

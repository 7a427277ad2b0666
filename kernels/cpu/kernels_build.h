#pragma once

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/float_matmul_kernels.h"
#include "kernels/cpu/index_kernels.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/recurrent_kernels.h"
#include "kernels/cpu/scale_kernels.h"
#include "kernels/cpu/vector_kernels.h"

namespace baton::cpu {

// Builds the kernel table for instruction set S. GEMMs of quantised panels are those of Quantised.
template <class S, template <class> class Quantised = MatMulKernels>
constexpr KernelTable BuildKernels() {
  using M = MatMulKernels<S>;
  using V = VectorKernels<S>;
  KernelTable table{};
  table.quantize = M::Quantize;
  table.panels[static_cast<int>(PanelKind::kNibble)] =
      Quantised<S>::template QuantisedPanels<PanelKind::kNibble>;
  table.panels[static_cast<int>(PanelKind::kByte)] =
      Quantised<S>::template QuantisedPanels<PanelKind::kByte>;
  table.panels[static_cast<int>(PanelKind::kFp4)] =
      Quantised<S>::template QuantisedPanels<PanelKind::kFp4>;
  table.panels[static_cast<int>(PanelKind::kIQ4)] =
      Quantised<S>::template QuantisedPanels<PanelKind::kIQ4>;
  table.panels[static_cast<int>(PanelKind::kFive)] =
      Quantised<S>::template QuantisedPanels<PanelKind::kFive>;
  table.panels[static_cast<int>(PanelKind::kSix)] =
      Quantised<S>::template QuantisedPanels<PanelKind::kSix>;
  table.panels[static_cast<int>(PanelKind::kF32)] =
      FloatMatMulKernels<S>::template FloatPanels<PanelKind::kF32>;
  table.panels[static_cast<int>(PanelKind::kF16)] =
      FloatMatMulKernels<S>::template FloatPanels<PanelKind::kF16>;
  table.panels[static_cast<int>(PanelKind::kBF16)] =
      FloatMatMulKernels<S>::template FloatPanels<PanelKind::kBF16>;
  table.panels[static_cast<int>(PanelKind::kFp8)] =
      FloatMatMulKernels<S>::template FloatPanels<PanelKind::kFp8>;
  table.expand_scales = ScaleKernels<S>::ExpandScales;
  table.store = M::StoreRows;
  table.silu_mul = V::SiluMul;
  table.clamped_mul = V::ClampedMul;
  table.rms_norm = V::RmsNorm;
  table.rotate = V::Rotate;
  table.add_scaled = V::AddScaled;
  table.attention = AttentionKernels<S, KeyOrder::kDimMajor>::Run;
  table.token_major_attention = AttentionKernels<S, KeyOrder::kTokenMajor>::Run;
  table.index_scores = IndexKernels<S>::Run;
  table.write_kv = V::WriteKv;
  table.exp_sum = V::ExpSum;
  table.arg_max = V::ArgMax;
  table.convolve = RecurrentKernels<S>::Convolve;
  table.step_state = RecurrentKernels<S>::StepState;
  table.scan_state = RecurrentKernels<S>::ScanState;
  table.mul_silu = RecurrentKernels<S>::MulSilu;
  return table;
}

}  // namespace baton::cpu

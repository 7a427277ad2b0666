#pragma once

#include "kernels/cpu/kernel_table.h"

namespace baton::cpu {

// The form of quantised panels and of their scales, without addresses.
struct PanelFormat {
  PanelView view;
  StoredScales stored;
  bool expands = false;  // false: the kernels read the scales as they are stored
  size_t panel_scale_bytes() const { return expands ? stored.panel_bytes : view.panel_scale_bytes; }
};

}  // namespace baton::cpu

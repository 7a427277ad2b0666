#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/panel_format.h"
#include "kernels/tensor.h"

// Panels of weights with groups (WeightGroups). Their layout is that of PackedMatrix.
namespace baton::cpu {

// Whether the kernels compute with the numbers and scales as they are: groups are whole blocks of
// 32 inputs, or without zero points halves of blocks, in the order of the inputs. Others are packed
// as float32.
bool FitsPanels(const HostMatrix& matrix);

// The form of the panels. The matrix must fit panels.
struct GroupFormat : PanelFormat {
  int64_t inputs_of_set = 0;  // of a set of scales; the last and the first one may have fewer
  int64_t inputs_before = 0;  // of the first set, before the matrix
};
GroupFormat GroupFormatOf(const HostMatrix& matrix);

// Writes the numbers of a panel, and its scales. Returns whether all of them are numbers: FP8 has
// bits for NaN, which the kernels do not know.
bool PackGroupValues(const HostMatrix& matrix,
                     const GroupFormat& format,
                     int64_t panel,
                     std::byte* to);
void PackGroupScales(const HostMatrix& matrix,
                     const GroupFormat& format,
                     int64_t panel,
                     std::byte* to);

}  // namespace baton::cpu

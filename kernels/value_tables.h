#pragma once

#include <cstdint>

// The numbers of formats whose 4 bits are an index into a table. Plain data, so that kernels of any
// instruction set can include it.
namespace baton {

// Twice the numbers of FP4 (E2M1), by their bits. −0 is 0, as in ggml.
inline constexpr int8_t kTwiceFp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The numbers of IQ4_NL and IQ4_XS (kvalues_iq4nl in ggml, src/ggml-common.h).
inline constexpr int8_t kIQ4Values[16] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

}  // namespace baton

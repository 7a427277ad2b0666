#include "kernels/dtype.h"

#include <iterator>

#include "common/base/check.h"

namespace baton {
namespace {

struct Row {
  std::string_view name;
  BlockShape shape;
};

constexpr Row kRows[] = {
    {"f32", {1, 4}},        {"f16", {1, 2}},      {"bf16", {1, 2}},     {"q8_0", {32, 34}},
    {"q4_0", {32, 18}},     {"q4_1", {32, 20}},   {"q5_0", {32, 22}},   {"q5_1", {32, 24}},
    {"q4_K", {256, 144}},   {"q5_K", {256, 176}}, {"q6_K", {256, 210}}, {"fp8", {1, 1}},
    {"u4", {2, 1}},         {"i8", {1, 1}},       {"fp4", {2, 1}},      {"iq4_nl", {32, 18}},
    {"iq4_xs", {256, 136}}, {"q2_K", {256, 84}},  {"q3_K", {256, 110}}, {"mxfp4", {32, 17}},
};
static_assert(std::size(kRows) == kDTypes);

const Row& RowOf(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  BATON_CHECK(index < std::size(kRows), "dtype {}", index);
  return kRows[index];
}

}  // namespace

BlockShape ShapeOf(DType dtype) {
  return RowOf(dtype).shape;
}

std::string_view Name(DType dtype) {
  return RowOf(dtype).name;
}

}  // namespace baton

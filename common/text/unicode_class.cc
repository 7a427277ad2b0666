#include "common/text/unicode_class.h"

#include <utf8proc.h>

#include <cstring>
#include <memory>

#include "common/base/check.h"

namespace baton {
namespace {

CharClass Classify(char32_t value) {
  CharClass bits = 0;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(value))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      bits = kLetter | kUpperLike;
      break;
    case UTF8PROC_CATEGORY_LL:
      bits = kLetter | kLowerLike;
      break;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      bits = kLetter | kUpperLike | kLowerLike;
      break;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      bits = kUpperLike | kLowerLike;
      break;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      bits = kNumber;
      break;
    default:
      break;
  }
  if (IsUnicodeSpace(value)) bits |= kSpace;
  if (value == '\r' || value == '\n') bits |= kLineEnd;
  return bits;
}

std::unique_ptr<const internal::ClassTable> BuildTable() {
  auto table = std::make_unique<internal::ClassTable>();
  size_t used = 0;
  for (char32_t base = 0; base < 0x110000; base += 256) {
    CharClass page[256];
    for (char32_t i = 0; i < 256; ++i) page[i] = Classify(base + i);
    size_t found = 0;
    while (found < used && std::memcmp(table->pages[found], page, sizeof(page)) != 0) ++found;
    if (found == used) {
      BATON_CHECK(used < 256, "more than 256 distinct pages of Unicode classes");
      std::memcpy(table->pages[used++], page, sizeof(page));
    }
    table->page[base >> 8] = static_cast<uint8_t>(found);
  }
  return table;
}

}  // namespace

bool IsUnicodeSpace(char32_t value) {
  if (value <= 0x20) return value == 0x20 || (value >= 0x09 && value <= 0x0D);
  return value == 0x85 || value == 0xA0 || value == 0x1680 ||
         (value >= 0x2000 && value <= 0x200A) || value == 0x2028 || value == 0x2029 ||
         value == 0x202F || value == 0x205F || value == 0x3000;
}

const internal::ClassTable& internal::GetClassTable() {
  static const std::unique_ptr<const ClassTable> table = BuildTable();
  return *table;
}

}  // namespace baton

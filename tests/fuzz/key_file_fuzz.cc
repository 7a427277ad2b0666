// The input is a file of API keys. A file that is accepted is written back and read again with the
// same content.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/check.h"
#include "common/security/api_keys.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using baton::ApiKeys;
  const auto keys = ApiKeys::Parse({reinterpret_cast<const char*>(data), size});
  if (!keys.ok()) return 0;
  const std::string text = keys->ToJson();
  const auto again = ApiKeys::Parse(text);
  BATON_CHECK(again.ok(), "a written file of keys is refused: {}", baton::Message(again.status()));
  BATON_CHECK(again->ToJson() == text, "a file of keys changes when it is written and read");
  return 0;
}

#include "common/model/fingerprint.h"

#include <span>
#include <string>

#include <fmt/format.h>

namespace baton {

Hash128 Fingerprint(const ModelSpec& spec, const WeightSource& weights) {
  const std::string text = fmt::format("{}weights {}\n", spec.ToString(), weights.Identity());
  return Xxh3Wide(std::as_bytes(std::span(text)));
}

}  // namespace baton

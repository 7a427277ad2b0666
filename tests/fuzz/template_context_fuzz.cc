#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/text/chat_template.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

// Templates that use their input as chat templates do, with the most expensive filters and loops.
const std::vector<ChatTemplate>& Templates() {
  static const auto* templates = [] {
    auto* all = new std::vector<ChatTemplate>();
    for (const char* source :
         {"{% for m in messages %}<|{{ m.role }}|>{{ m.content|trim }}{{ m['content'][::-1] }}"
          "{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
          "{{ tools|tojson(indent=2) }}{{ tools }}{% for t in tools %}{{ t.function.name|upper }}"
          "{{ t.function.parameters|dictsort }}{% endfor %}",
          "{% for m in messages %}{{ m.content.split('\\n')|map('trim')|join('|') }}"
          "{{ m.content.replace('a', m.content) }}{{ m.content|indent(7)|e }}{% endfor %}",
          "{% for m in messages recursive %}{{ m.items()|list }}{{ loop(m.c) if m.c }}{% endfor %}",
          "{% for m in messages %}{{ m.content.title() }}{{ '{:>9.3}'.format(m.n) }}{{ '%s' % m.n "
          "}}"
          "{{ m.content|truncate(9) }}{{ m|string }}{% endfor %}"}) {
      auto parsed = ChatTemplate::Parse(source);
      BATON_CHECK(parsed.ok(), "{}", Message(parsed.status()));
      all->push_back(*std::move(parsed));
    }
    return all;
  }();
  return *templates;
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;  // NOLINT(google-build-using-namespace)
  if (size > 65536) return 0;
  const auto context = ParseOrderedJson("the context", {reinterpret_cast<const char*>(data), size});
  if (!context.ok()) {
    BATON_CHECK(!Message(context.status()).empty(), "an error without a message");
    return 0;
  }
  RenderOptions options;
  options.limits = {.max_steps = 20'000, .max_memory = 4 << 20, .max_output = 1 << 20};
  for (const ChatTemplate& one : Templates()) {
    const auto segments = one.RenderSegments(*context, options);
    if (!segments.ok()) {
      BATON_CHECK(!Message(segments.status()).empty(), "an error without a message");
      continue;
    }
    size_t bytes = 0;
    for (const TextSegment& segment : *segments) {
      BATON_CHECK(IsValidUtf8(segment.text), "a segment cuts a character");
      bytes += segment.text.size();
    }
    BATON_CHECK(bytes <= options.limits.max_output, "{} bytes", bytes);
  }
  return 0;
}

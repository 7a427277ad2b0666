#pragma once

#include "cli/generation_client.h"

namespace CLI {
class App;
}

namespace baton {

// The flags that `generate` and `chat` share: one for each of kSamplingFields, --top-k, --seed,
// --max-tokens, --stop, --timeout-ms. They fill `call`, which outlives the parsing.
void AddSamplingFlags(CLI::App& command, GenerateCall& call);

}  // namespace baton

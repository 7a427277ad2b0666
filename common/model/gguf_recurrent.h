#pragma once

#include "common/base/status.h"
#include "common/model/config_fields.h"
#include "common/model/model_spec.h"

// Recurrent layers in GGUF keys. Errors as SpecFromGguf.
namespace baton {

// Reads the gated delta nets of Qwen3-Next and Qwen 3.5, and which layers have them.
Status ReadDeltaNetsOfGguf(GgufFields& fields, ModelSpec& spec);

// Whether the files list the KV heads of each layer, 0 in layers without attention.
bool ListsLayersInGguf(ModelFamily family);

// Reads these lists: the KV heads, what each layer consists of, and in Nemotron-H, whose files list
// the sizes of feed-forward networks, too, that of the dense ones.
Status ReadListedLayersOfGguf(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec);

// Reads the Mamba layers of Jamba.
Status ReadSelectiveScanOfGguf(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec);

// Reads the Kimi delta attention of Kimi Linear, which has as many heads as attention.
Status ReadKimiDeltaOfGguf(GgufFields& fields, ModelSpec& spec);

// Reads the Mamba 2 layers of Mamba 2, Falcon-H1 and Nemotron-H. The factors of Falcon-H1 are in
// its weights.
Status ReadStateSpaceOfGguf(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec);

}  // namespace baton

#pragma once

#include "common/kvcache/layout.h"
#include "common/model/model_spec.h"
#include "kernels/kv_view.h"

namespace baton {

// The shape of a model's KV for a backend with these needs: everything but block_tokens and dtype,
// which are options. Where the backend has no cache groups, all layers keep the tokens that one of
// them needs.
DenseKv DenseKvOf(const ModelSpec& spec, const KvNeeds& needs);

}  // namespace baton

#pragma once

#include <string>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/model/open_model.h"

namespace baton {

// What tells models apart (fingerprint.h); workers and routers of a cluster agree in it.
struct ModelIdentity {
  Hash128 shape;        // of the spec alone
  Hash128 tokenizer;    // zero: no tokenizer files
  Hash128 fingerprint;  // of spec and weights; zero: no weight files
};

// The tokenizer of the model at `path`; zero when it has none that can be read.
Hash128 TokenizerHashAt(const std::string& path);

// Of the model at `path`, opened as OpenModel does. Weight files may be missing or broken. Errors:
// those of OpenModel for what is left.
StatusOr<ModelIdentity> IdentifyModel(const std::string& path, const OpenOptions& options);

}  // namespace baton

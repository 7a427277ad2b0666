#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/dtype.h"

// The tensor types of GGUF files, by the numbers of ggml
// (https://github.com/ggml-org/ggml/blob/master/include/ggml.h, enum ggml_type).
namespace baton {

// Nothing for a type that Baton does not read.
std::optional<DType> TypeOfGgml(uint32_t type);

// The type for messages, for example "ggml type 16 (IQ2_XXS)"; the number alone where ggml's name
// is not known.
std::string NameOfGgmlType(uint32_t type);

// The names of the types that Baton reads, with spaces between them.
std::string ReadableGgmlTypes();

}  // namespace baton

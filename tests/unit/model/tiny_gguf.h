#pragma once

#include <string>

namespace baton {

// The bytes of the GGUF file of the tiny model `name`: those of tests/data/tiny/gguf/NAME.gguf, or
// what the recipe NAME.recipe makes of NAME/model.safetensors (make_recipes.py). Stops the process
// when there is neither, or when the recipe does not fit.
std::string TinyGgufBytes(const std::string& name);

// The path of the tiny model `name`, a folder, or of its GGUF file for gguf/NAME.gguf. Such a file
// is removed when the process ends.
std::string TinyModelPath(const std::string& name);

}  // namespace baton

#pragma once

#include <string_view>

namespace baton {

// Baton's version, from the latest tag v* of the checkout, else as stated by project() in
// CMakeLists.txt: "0.1.0", or "0.1.0+5.g1a2b3c4" five commits after a tag
// (cmake/BatonVersion.cmake).
std::string_view Version();

}  // namespace baton

#pragma once

#include <string_view>

namespace baton::router {

// The page at `/`: a static document that shows /status.json and refreshes it every second.
std::string_view StatusPage();

}  // namespace baton::router

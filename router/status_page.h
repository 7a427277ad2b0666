#pragma once

#include <string_view>

namespace baton::router {

// The page at `/`: one static document that shows /status.json and keeps it fresh.
std::string_view StatusPage();

}  // namespace baton::router

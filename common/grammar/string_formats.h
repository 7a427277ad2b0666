#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

// The regular expression of ECMA-262 for a format of JSON schema; nothing for an unknown format.
// Each text that matches is of the format. Some of the format do not match: of hostnames those with
// hyphens side by side and those of more than ten labels, of dates the years before 1000, leap
// seconds, quoted local parts of email addresses.
std::optional<std::string> RegexOfFormat(std::string_view format);

// The names of the known formats, separated by commas.
std::string KnownFormats();
std::vector<std::string> FormatNames();

}  // namespace baton

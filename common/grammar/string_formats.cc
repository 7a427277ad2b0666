#include "common/grammar/string_formats.h"

#include <map>
#include <vector>

#include <fmt/format.h>

namespace baton {
namespace {

using Formats = std::map<std::string, std::string, std::less<>>;

// Any of the expressions.
std::string Any(const std::vector<std::string>& options) {
  return fmt::format("(?:{})", fmt::join(options, "|"));
}

// The calendar of RFC 3339, in which each month has its own length. Each option begins with a class
// and not with a group, so that one rule has all beginnings, and their first mask is one.
std::string Date() {
  const std::string day = Any({"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
                               "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
                               "02-(?:0[1-9]|1[0-9]|2[0-8])"});
  // A group, because XGrammar takes long for options with a long text at their ends.
  const std::string leap_day = "(?:-02-28|-02-29)";
  return Any({"[1-9][0-9][0-9][0-9]-" + day,
              "[1-9][0-9](?:0[48]|[2468][048]|[13579][26])" + leap_day,
              "[2468][048]00" + leap_day,
              "[13579][26]00" + leap_day});
}

// RFC 3339. Which minutes have a leap second depends on announcements, so none has.
std::string Time() {
  const std::string hours_minutes = "(?:[01][0-9]|2[0-3]):[0-5][0-9]";
  return fmt::format("{0}:[0-5][0-9](?:\\.[0-9]{{1,9}})?(?:Z|[+-]{0})", hours_minutes);
}

// ISO 8601 as RFC 3339, appendix A.
std::string Duration() {
  const std::string number = "[0-9]{1,9}";
  const std::string time = fmt::format("T(?:{0}H(?:{0}M(?:{0}S)?)?|{0}M(?:{0}S)?|{0}S)", number);
  const std::string date = fmt::format("(?:{0}Y(?:{0}M(?:{0}D)?)?|{0}M(?:{0}D)?|{0}D)", number);
  return fmt::format("P(?:{0}(?:{1})?|{1}|{2}W)", date, time, number);
}

// RFC 1123: labels of at most 63 characters, 253 in all. A label with hyphens is at most as long as
// one without.
std::string Hostname() {
  const auto labels = [](int longest, const char* more) {
    const std::string label = fmt::format(
        "(?:[A-Za-z0-9]{{1,{}}}|[A-Za-z0-9](?:-?[A-Za-z0-9]){{1,{}}})", longest, (longest - 1) / 2);
    return fmt::format("{0}(?:\\.{0}){1}", label, more);
  };
  return Any({labels(61, "{0,3}"), labels(23, "{4,9}")});
}

// RFC 5321 without quoted local parts, and without its bounds of lengths.
std::string Email() {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
  const std::string label = "[A-Za-z0-9](?:-?[A-Za-z0-9])*";
  return fmt::format("{0}(?:\\.{0})*@{1}(?:\\.{1})*", atom, label);
}

std::string Ipv4() {
  const std::string byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  return fmt::format("(?:{0}\\.){{3}}{0}", byte);
}

// RFC 4291: eight groups. One run of zeros may be "::".
std::string Ipv6() {
  const std::string group = "[0-9a-fA-F]{1,4}";
  std::vector<std::string> options = {fmt::format("(?:{0}:){{7}}(?:{0}|:)", group),
                                      fmt::format(":(?:(?::{0}){{1,7}}|:)", group)};
  for (int before = 1; before <= 6; ++before) {
    options.push_back(
        fmt::format("(?:{0}:){{{1}}}(?:(?::{0}){{1,{2}}}|:)", group, before, 7 - before));
  }
  return Any(options);
}

// The parts of RFC 3986.
struct UriParts {
  const std::string escaped = "%[0-9A-Fa-f]{2}";
  const std::string plain = "A-Za-z0-9._~!$&'()*+,;=\\-";
  const std::string pchar = fmt::format("(?:[{}:@]|{})", plain, escaped);
  const std::string segments = fmt::format("(?:/{}*)*", pchar);
  const std::string authority =
      fmt::format("(?:(?:[{0}:]|{1})*@)?(?:[{0}]|{1})*(?::[0-9]{{0,5}})?", plain, escaped);
  const std::string tail =
      fmt::format("(?:\\?(?:[{0}:@/?]|{1})*)?(?:#(?:[{0}:@/?]|{1})*)?", plain, escaped);
};

std::string Uri() {
  const UriParts uri;
  return fmt::format("[A-Za-z][A-Za-z0-9+.-]*:(?://{0}{1}|/?(?:{2}+{1})?){3}",
                     uri.authority,
                     uri.segments,
                     uri.pchar,
                     uri.tail);
}

std::string UriReference() {
  const UriParts uri;
  const std::string no_colon = fmt::format("(?:[{}@]|{})", uri.plain, uri.escaped);
  return fmt::format("(?:{4}|(?://{0}{1}|/(?:{2}+{1})?|{5}+{1})?{3})",
                     uri.authority,
                     uri.segments,
                     uri.pchar,
                     uri.tail,
                     Uri(),
                     no_colon);
}

// RFC 6570.
std::string UriTemplate() {
  const std::string escaped = "%[0-9A-Fa-f]{2}";
  const std::string literal = fmt::format("(?:[!#$&(-;=?-\\[\\]_a-z~]|{})", escaped);
  const std::string character = fmt::format("(?:[A-Za-z0-9_]|{})", escaped);
  const std::string variable = fmt::format("{0}(?:\\.?{0})*(?::[1-9][0-9]{{0,3}}|\\*)?", character);
  return fmt::format("(?:{0}|\\{{[+#./;?&=,!@|]?{1}(?:,{1})*\\}})*", literal, variable);
}

// Expressions that ECMA-262 and other dialects read in the same way, with groups of one level.
std::string Regex() {
  const std::string literal = "[A-Za-z0-9 _,:;=@#%&<>!~-]";
  const std::string escaped = "\\\\[dDsSwW.*+?^$(){}\\[\\]|/]";
  const std::string set = "\\[\\^?(?:[A-Za-z0-9 _]|\\\\[dsw.-])+\\]";
  const std::string term =
      fmt::format("(?:{}|{}|\\.|{})(?:[*+?]|\\{{[1-9][0-9]?\\}})?", literal, escaped, set);
  const std::string group = fmt::format("\\((?:\\?:)?(?:{0})+(?:\\|(?:{0})+)*\\)[*+?]?", term);
  return fmt::format("\\^?(?:{}|{})*\\$?", term, group);
}

// RFC 6901.
constexpr const char* kPointer = "(?:/(?:[^/~]|~[01])*)*";

const Formats& AllFormats() {
  // International forms, and url, which no draft defines, are written as the narrower ones.
  static const Formats formats = {
      {"date", Date()},
      {"time", Time()},
      {"date-time", Date() + "T" + Time()},
      {"duration", Duration()},
      {"email", Email()},
      {"hostname", Hostname()},
      {"idn-email", Email()},
      {"idn-hostname", Hostname()},
      {"ipv4", Ipv4()},
      {"ipv6", Ipv6()},
      {"iri", Uri()},
      {"iri-reference", UriReference()},
      {"regex", Regex()},
      {"uri", Uri()},
      {"uri-reference", UriReference()},
      {"uri-template", UriTemplate()},
      {"url", Uri()},
      {"uuid", "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"},
      {"json-pointer", kPointer},
      {"relative-json-pointer", fmt::format("(?:0|[1-9][0-9]{{0,8}})(?:#|{})", kPointer)}};
  return formats;
}

}  // namespace

std::optional<std::string> RegexOfFormat(std::string_view format) {
  const auto found = AllFormats().find(format);
  if (found == AllFormats().end()) return std::nullopt;
  return "^(?:" + found->second + ")$";
}

std::vector<std::string> FormatNames() {
  std::vector<std::string> names;
  for (const auto& [name, regex] : AllFormats()) names.push_back(name);
  return names;
}

std::string KnownFormats() {
  return fmt::format("{}", fmt::join(FormatNames(), ", "));
}

}  // namespace baton

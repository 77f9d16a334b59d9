// JSON of PolyKV's own routes, and the checks that every request body passes before any parser sees
// it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace polykv {

using Json = nlohmann::ordered_json;

// Deeper nesting is refused: parsers and copies of a document recurse.
inline constexpr int kMaxJsonDepth = 256;

// A 400 if brackets nest deeper than kMaxJsonDepth outside of strings. Does not validate otherwise.
std::optional<Problem> CheckJsonDepth(std::string_view text);

// The object that `body` holds; an empty body is an empty object only with `allow_empty`. Anything
// else, bad UTF-8 included, is a 400.
Result<Json> ParseJsonObject(std::string_view body, bool allow_empty = false);

// Text of `json` on one line; bytes that are not UTF-8 become U+FFFD.
std::string JsonText(const Json& json);

// Whether `text` is UTF-8 as RFC 3629 defines it (no overlong forms, no surrogates).
bool IsUtf8(std::string_view text);

inline constexpr size_t kMaxNameBytes = 256;

// Whether `text` may name something: 1 to 256 bytes of UTF-8 without control characters.
bool IsName(std::string_view text);

// What the JSON library says about a text, short and without the library's own prefix.
std::string JsonErrorMessage(std::string_view what);

}  // namespace polykv

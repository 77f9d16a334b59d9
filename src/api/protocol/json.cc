#include "api/protocol/json.h"

#include <algorithm>
#include <exception>

namespace polykv {
namespace {

constexpr size_t kMaxErrorBytes = 200;

// Length of the UTF-8 sequence at the front of `text`, 0 if there is none.
size_t Utf8SequenceLength(std::string_view text) {
  const auto byte = [text](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto continues = [&byte](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first < 0x80U) return 1;
  if (first >= 0xC2U && first <= 0xDFU) return continues(1) ? 2 : 0;
  if (first >= 0xE0U && first <= 0xEFU) {
    const bool overlong = first == 0xE0U && byte(1) < 0xA0U;
    const bool surrogate = first == 0xEDU && byte(1) > 0x9FU;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0U && first <= 0xF4U) {
    const bool overlong = first == 0xF0U && byte(1) < 0x90U;
    const bool beyond = first == 0xF4U && byte(1) > 0x8FU;
    return continues(1) && continues(2) && continues(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::optional<Problem> CheckJsonDepth(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        return InvalidRequest("Invalid JSON: nested deeper than " + std::to_string(kMaxJsonDepth) +
                              " levels");
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::nullopt;
}

Result<Json> ParseJsonObject(std::string_view body, bool allow_empty) {
  if (allow_empty && body.empty()) return Json::object();
  if (std::optional<Problem> too_deep = CheckJsonDepth(body)) return *std::move(too_deep);
  try {
    Json json = Json::parse(body);
    if (!json.is_object()) return InvalidRequest("The request body must be a JSON object");
    return json;
  } catch (const nlohmann::json::exception& error) {
    return InvalidRequest("Invalid JSON: " + JsonErrorMessage(error.what()));
  }
}

std::string JsonText(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool IsName(std::string_view text) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  return !text.empty() && text.size() <= kMaxNameBytes && IsUtf8(text) &&
         std::none_of(text.begin(), text.end(), is_control);
}

std::string JsonErrorMessage(std::string_view what) {
  if (what.starts_with("[json.exception.")) {
    const size_t end = what.find("] ");
    if (end != std::string_view::npos) what.remove_prefix(end + 2);
  }
  std::string message(what.substr(0, kMaxErrorBytes));
  if (what.size() > kMaxErrorBytes) message += "...";
  return message;
}

}  // namespace polykv

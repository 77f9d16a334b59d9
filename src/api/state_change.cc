#include "api/state_change.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace polykv {
namespace {

bool IsJsonType(std::string type) {
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ')) type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return type == "application/json";
}

Problem WrongType(const char* name, const char* wants) {
  return InvalidRequest("Field '" + std::string(name) + "': must be " + wants);
}

const Json* FindOrNull(const Json& body, const char* name) {
  const auto found = body.find(name);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace

Result<Json> ReadStateChange(const AccessRules& rules, const HttpRequest& request,
                             const std::vector<std::string_view>& fields) {
  if (std::optional<Problem> foreign =
          CheckOrigin(rules, request.Header("host"), request.Header("origin"))) {
    return *std::move(foreign);
  }
  const std::string type = request.Header("content-type");
  if ((!request.body.empty() || !type.empty()) && !IsJsonType(type)) {
    return Problem{.status = 415,
                   .type = "unsupported_media_type",
                   .message = "Content-Type must be application/json"};
  }
  Result<Json> body = ParseJsonObject(request.body, /*allow_empty=*/true);
  if (!body.ok()) return body;
  for (const auto& [name, value] : body.value().items()) {
    if (std::find(fields.begin(), fields.end(), name) == fields.end()) {
      return InvalidRequest("Unknown field '" + name.substr(0, 64) + "'");
    }
  }
  return body;
}

Result<std::optional<bool>> BoolField(const Json& body, const char* name) {
  const Json* field = FindOrNull(body, name);
  if (field == nullptr) return std::optional<bool>();
  if (!field->is_boolean()) return WrongType(name, "true or false");
  return std::optional<bool>(field->get<bool>());
}

Result<std::optional<std::string>> StringField(const Json& body, const char* name) {
  const Json* field = FindOrNull(body, name);
  if (field == nullptr) return std::optional<std::string>();
  if (!field->is_string()) return WrongType(name, "a string");
  return std::optional<std::string>(field->get<std::string>());
}

Result<std::optional<int64_t>> CountField(const Json& body, const char* name) {
  constexpr double kLargest = 9007199254740992.0;  // exact in every JSON library
  const Json* field = FindOrNull(body, name);
  if (field == nullptr) return std::optional<int64_t>();
  const double value = field->is_number_integer() ? field->get<double>() : -1;
  if (value < 0 || value > kLargest) return WrongType(name, "an integer, 0 or more");
  return std::optional<int64_t>(static_cast<int64_t>(value));
}

}  // namespace polykv

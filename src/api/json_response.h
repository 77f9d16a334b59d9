// Answers whose body is JSON.
#pragma once

#include <string>
#include <utility>

#include "api/http_server.h"
#include "api/protocol/json.h"

namespace polykv {

// `text` is JSON already.
inline HttpResponse JsonTextResponse(std::string text) {
  HttpResponse response;
  response.body = std::move(text);
  return response;
}

inline HttpResponse JsonResponse(const Json& json, int status = 200) {
  HttpResponse response = JsonTextResponse(JsonText(json));
  response.status = status;
  return response;
}

}  // namespace polykv

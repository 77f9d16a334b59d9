// Where routes go that need the model.
#pragma once

#include <string>

#include "api/http_server.h"
#include "api/services.h"

namespace polykv {

// A request to one of them wakes the model and keeps it loaded until the answer is out.
class ModelRoutes {
 public:
  ModelRoutes(HttpServer* server, const Services* services)
      : server_(server), services_(services) {}

  void Get(const std::string& path, HttpHandler handler);
  void Post(const std::string& path, HttpHandler handler);
  void Delete(const std::string& path, HttpHandler handler);

 private:
  HttpServer* const server_;
  const Services* const services_;
};

}  // namespace polykv

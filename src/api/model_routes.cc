#include "api/model_routes.h"

#include <utility>

#include "api/model_gate.h"
#include "api/problem.h"

namespace polykv {
namespace {

HttpHandler WithModel(const Services* services, HttpHandler handler) {
  return [services, handler = std::move(handler)](const HttpRequest& request) {
    Result<ModelGate::Hold> hold = services->gate->Enter();
    if (!hold.ok()) return ProblemResponse(hold.problem());
    HttpResponse response = handler(request);
    if (response.next) {
      response.next = [hold = hold.value(), next = std::move(response.next)](std::string* out) {
        return next(out);
      };
    }
    return response;
  };
}

}  // namespace

void ModelRoutes::Get(const std::string& path, HttpHandler handler) {
  server_->Get(path, WithModel(services_, std::move(handler)));
}

void ModelRoutes::Post(const std::string& path, HttpHandler handler) {
  server_->Post(path, WithModel(services_, std::move(handler)));
}

void ModelRoutes::Delete(const std::string& path, HttpHandler handler) {
  server_->Delete(path, WithModel(services_, std::move(handler)));
}

}  // namespace polykv

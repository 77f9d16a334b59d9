// /polykv/: the dashboard, a page that knows the server by its other routes alone. It holds no data
// and so needs no key; what it shows comes through routes that do.
#include <string>
#include <string_view>
#include <utility>

#include "api/dashboard_files.h"
#include "api/routes.h"

namespace polykv {
namespace {

// Nothing but the page's own files and this server, and no text that becomes markup or script.
constexpr const char* kContentPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

const char* ContentType(std::string_view name) {
  constexpr std::pair<std::string_view, const char*> kTypes[] = {
      {".html", "text/html; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".svg", "image/svg+xml; charset=utf-8"}};
  for (const auto& [suffix, type] : kTypes) {
    if (name.ends_with(suffix)) return type;
  }
  return "text/plain; charset=utf-8";
}

HttpResponse FileResponse(const DashboardFile& file) {
  return {.content_type = ContentType(file.name),
          .headers = {{"Cache-Control", "no-cache"},
                      {"Content-Security-Policy", kContentPolicy},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Referrer-Policy", "no-referrer"},
                      {"X-Content-Type-Options", "nosniff"}},
          .body = std::string(file.text)};
}

// Relative, so that it holds behind a proxy that puts a path of its own in front.
HttpResponse ToFolder(const HttpRequest&) {
  return {.status = 308, .headers = {{"Location", "polykv/"}}};
}

}  // namespace

void AddDashboardRoutes(HttpServer* server) {
  server->GetPage("/polykv", ToFolder);
  for (const DashboardFile& file : DashboardFiles()) {
    const std::string name = file.name == "index.html" ? "" : std::string(file.name);
    server->GetPage("/polykv/" + name, [&file](const HttpRequest&) { return FileResponse(file); });
  }
}

}  // namespace polykv

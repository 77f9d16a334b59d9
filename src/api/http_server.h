// The HTTP front door: listeners, API keys, CORS, JSON error bodies, streams. Knows no route by
// itself.
//
// Own code on the HTTP library that llama-server uses, instead of llama.cpp's server_http_context:
// that one answers every 404 with its own body, also a route's, and cannot give a refused body
// (413) a JSON one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace polykv {

struct HttpServerConfig {
  std::vector<std::string> hosts = {"127.0.0.1"};  // names, addresses or paths ending in .sock
  int port = 8080;                                 // 0: any free one, with one host only
  std::string prefix;                              // in front of every route
  std::string static_path;                         // folder served at the prefix; empty: none
  std::vector<std::string> api_keys;               // empty: none needed
  bool isolate_keys = false;                       // each key is a tenant of its own
  std::string admin_key;                           // another one, for the operator; empty: none
  std::string cors_origins = "*";
  std::string cors_methods;
  std::string cors_headers;
  bool cors_credentials = true;
  size_t max_connections = 1024;  // each with a thread; beyond them: status, and 503
  int read_timeout_s = 600;
  int write_timeout_s = 600;
  bool reuse_port = false;
  size_t max_body_bytes = size_t{100} << 20;
};

// Who sends a request, by the key that comes with it.
struct Caller {
  TenantId tenant = kEverybody;
  // Sees what all tenants have, and may change what concerns all: with the admin key, or everybody
  // where keys are not isolated.
  bool is_admin = true;

  bool Sees(TenantId owner) const { return is_admin || owner == tenant; }
};

struct HttpRequest {
  Caller caller;
  std::string path;
  std::string body;                            // of a multipart form: its text fields as JSON
  std::map<std::string, std::string> params;   // of the path and the query
  std::map<std::string, std::string> headers;  // names in lower case
  // Whether the client is gone. Two system calls; valid until the response has been sent or
  // dropped.
  std::function<bool()> should_stop = [] { return false; };

  std::string Param(const std::string& name) const;   // empty if absent
  bool IsSet(const std::string& name) const;          // the parameter is "1" or "true"
  std::string Header(const std::string& name) const;  // `name` in lower case; empty if absent
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json; charset=utf-8";
  std::map<std::string, std::string> headers;
  std::string body;
  // When set, the response is a stream: called until it returns false, each time with an empty
  // string to fill; what was filled in is sent, also by the last call. Must not throw. It is
  // destroyed as soon as the stream has ended or the client is gone.
  std::function<bool(std::string*)> next;
  // `next` is called to its end even if the client has gone.
  bool outlives_client = false;
};

// Runs on a worker thread, many at a time. What it throws becomes a 400 (std::invalid_argument) or
// 500.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

class HttpServer {
 public:
  explicit HttpServer(HttpServerConfig config);
  ~HttpServer();  // Stop, Join

  // Routes; `:name` in a path becomes a parameter. Before Start only.
  void Get(const std::string& path, const HttpHandler& handler);
  void Post(const std::string& path, const HttpHandler& handler);
  void Delete(const std::string& path, const HttpHandler& handler);
  // A page without data: needs no key, and is there before SetReady too. Before Start only.
  void GetPage(const std::string& path, const HttpHandler& handler);

  // By path without the prefix; what they throw is caught. Of several methods the first
  // registered.
  const std::map<std::string, HttpHandler>& handlers() const;

  // Binds and listens; a Problem says in one line what is wrong. Requests get 503 until SetReady.
  Result<std::vector<std::string>> Start();  // the addresses as URLs

  // Any thread.
  void SetReady();
  int n_open() const;  // requests that are being read, handled or answered
  void Stop();         // no new connections; returns at once
  void Join();         // after Stop: ends all connections, whatever they are at, and their threads

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace polykv

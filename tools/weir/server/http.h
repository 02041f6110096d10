// HTTP as the rest of the server sees it: a request comes in, a reply goes out, whole or as it comes. What all requests
// have to pass, Host, Origin, the token and the limits, is checked here.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/signal.h"

namespace weir_server {

struct HttpRequest {
  std::string method, path;  // the path without the query, decoded
  std::vector<std::pair<std::string, std::string>> query;
  std::string body;
  // Waits until the signal is set, at most so many milliseconds. False: the client has hung up, or the server ends.
  std::function<bool(Signal& signal, int ms)> wait;

  std::optional<std::string> param(const std::string& name) const;
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Instead of the body: gives the text that comes next, perhaps none, and waits for it at most some 100 ms. False:
  // that was the last. It is destroyed when the client is gone.
  std::function<bool(std::string& text)> more = nullptr;
};

// {"error": {...}} as OpenAI's API has it; "" for param and code: null.
std::string error_json(int status, const std::string& message, const std::string& param = "",
                       const std::string& code = "");
HttpReply error_reply(int status, const std::string& message, const std::string& param = "",
                      const std::string& code = "");

// Whether only programs of this machine reach an address: "localhost", 127.0.0.0/8 or ::1.
bool is_loopback(const std::string& host);

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 0;             // 0: any
  std::string token;        // of requests under /v1; "": none is asked for
  int client_seconds = 30;  // that a client may take nothing
};

class HttpServer {
 public:
  // `handler` is called by a thread for each connection. Exceptions become replies of status 500.
  HttpServer(const HttpOptions& options, std::function<HttpReply(const HttpRequest&)> handler);
  ~HttpServer();
  // Returns the port. Throws std::runtime_error.
  int bind();
  // Returns when stop() was called and all connections have ended. False: it ended by itself, as no connection could be
  // accepted any more.
  bool run();
  // Any thread: no further requests; replies that are written as they come end. Before run() has begun to listen it
  // does nothing, so that whoever ends the server calls it until run() has returned.
  void stop();

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace weir_server

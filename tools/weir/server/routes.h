// Which address is answered by what.
#pragma once

#include <atomic>
#include <optional>

#include "server/answer.h"
#include "server/saved.h"

namespace weir_server {

class Routes {
 public:
  // Throws std::runtime_error where the folder for saved conversations cannot be used.
  explicit Routes(Context& context);
  // Any thread.
  HttpReply answer(const HttpRequest& request);
  // Streams of events end.
  void stop() { is_stopping_ = true; }

 private:
  HttpReply route(const HttpRequest& request);
  std::shared_ptr<Answer> begin(const HttpRequest& request, Request wish, const std::string& prefix);
  HttpReply models(const std::string& id) const;
  HttpReply model() const;
  HttpReply sessions() const;
  // weir_routes.cpp
  HttpReply policies() const;
  Json settings_json() const;
  HttpReply set_settings(const HttpRequest& request);
  HttpReply plan(const HttpRequest& request) const;
  HttpReply fits() const;
  HttpReply events(const HttpRequest& request);
  HttpReply stop_answer(const HttpRequest& request, bool thinking_only);
  HttpReply saved(const HttpRequest& request, const std::string& rest);

  Context& context_;
  Running running_;
  std::optional<SavedFolder> saved_;
  std::atomic<bool> is_stopping_{false};
};

}  // namespace weir_server

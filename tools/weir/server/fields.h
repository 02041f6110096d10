// Reading the fields of a JSON object so that each is either understood or refused by its name: what a server leaves
// out in silence makes answers that nobody can explain.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace weir_server {

using Json = nlohmann::ordered_json;

// A request that is refused.
class RequestError : public std::runtime_error {
 public:
  RequestError(int status, const std::string& message, std::string param = "", std::string code = "")
      : std::runtime_error(message), status_(status), param_(std::move(param)), code_(std::move(code)) {}
  int status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }

 private:
  int status_;
  std::string param_, code_;
};

// null counts as not given. What is wrong is a RequestError of status 400 with the name of the field, as
// "messages[2].content".
class Fields {
 public:
  // `path` is the name of the object itself, "" of the whole body.
  Fields(const Json& object, std::string path);

  const Json* find(const std::string& key);  // null: not given
  const Json& need(const std::string& key);
  std::optional<double> number(const std::string& key, double low, double high);
  std::optional<uint64_t> whole(const std::string& key, uint64_t low, uint64_t high);
  std::optional<bool> yes_or_no(const std::string& key);
  std::optional<std::string> text(const std::string& key);
  std::optional<std::string> one_of(const std::string& key, const std::vector<std::string>& names);
  // Fields that change no answer.
  void ignore(const std::vector<std::string>& keys);
  // Given fields that are known and not served. `why` ends the message.
  void refuse(const std::string& key, const std::string& why);
  // Refuses all fields that nobody asked for.
  void end() const;

  std::string name_of(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  [[noreturn]] void wrong(const std::string& key, const std::string& what) const;

 private:
  const Json& object_;
  std::string path_;
  std::set<std::string> known_;
};

// The body of a request. Throws RequestError.
Json parse_body(const std::string& body);

// One line; what is not UTF-8 is replaced.
std::string json_text(const Json& json);

}  // namespace weir_server

// Fields of JSON objects; see fields.h.
#include "server/fields.h"

#include <algorithm>
#include <cmath>

#include "json_input.h"
#include "options.h"

namespace weir_server {

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object.is_object())
    throw RequestError(400, (path_.empty() ? std::string("the body") : path_) + " is not an object", path_);
}

void Fields::wrong(const std::string& key, const std::string& what) const {
  throw RequestError(400, name_of(key) + " " + what, name_of(key));
}

const Json* Fields::find(const std::string& key) {
  known_.insert(key);
  const auto field = object_.find(key);
  return field == object_.end() || field->is_null() ? nullptr : &*field;
}

const Json& Fields::need(const std::string& key) {
  const Json* const field = find(key);
  if (field == nullptr) wrong(key, "is missing");
  return *field;
}

std::optional<double> Fields::number(const std::string& key, double low, double high) {
  const Json* const field = find(key);
  if (field == nullptr) return std::nullopt;
  const double value = field->is_number() ? field->get<double>() : std::nan("");
  if (!(value >= low && value <= high)) wrong(key, weir_cli::format("is not a number from %g to %g", low, high));
  return value;
}

std::optional<uint64_t> Fields::whole(const std::string& key, uint64_t low, uint64_t high) {
  const Json* const field = find(key);
  if (field == nullptr) return std::nullopt;
  if (field->is_number_unsigned()) {
    const auto value = field->get<uint64_t>();
    if (value >= low && value <= high) return value;
  }
  wrong(key, "is not a whole number from " + std::to_string(low) + " to " + std::to_string(high));
}

std::optional<bool> Fields::yes_or_no(const std::string& key) {
  const Json* const field = find(key);
  if (field == nullptr) return std::nullopt;
  if (!field->is_boolean()) wrong(key, "is neither true nor false");
  return field->get<bool>();
}

std::optional<std::string> Fields::text(const std::string& key) {
  const Json* const field = find(key);
  if (field == nullptr) return std::nullopt;
  if (!field->is_string()) wrong(key, "is not a text");
  return field->get<std::string>();
}

std::optional<std::string> Fields::one_of(const std::string& key, const std::vector<std::string>& names) {
  const std::optional<std::string> value = text(key);
  if (value && std::find(names.begin(), names.end(), *value) == names.end())
    wrong(key, "is none of " + weir_cli::joined(names));
  return value;
}

void Fields::ignore(const std::vector<std::string>& keys) { known_.insert(keys.begin(), keys.end()); }

void Fields::refuse(const std::string& key, const std::string& why) {
  if (find(key) != nullptr) wrong(key, why);
}

void Fields::end() const {
  for (const auto& [key, value] : object_.items()) {
    if (!known_.contains(key)) wrong(key.substr(0, 100), "is no field that this server knows");
  }
}

Json parse_body(const std::string& body) {
  try {
    return weir_cli::parse_json(body);
  } catch (const std::runtime_error& e) {
    throw RequestError(400, std::string("the body is ") + e.what());
  }
}

std::string json_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace weir_server

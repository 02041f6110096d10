// The table of chat families. Not for other folders.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/status.h"
#include "text/chat_template.h"

namespace weir {

// A template text and questions about it.
struct TemplateText {
  std::string_view text;

  bool has(std::string_view piece) const { return text.find(piece) != std::string_view::npos; }
  // `before`, a line end, `after`. The line end is a real one or, as Jinja sources mostly write it, a backslash and an
  // n.
  bool has_lines(std::string_view before, std::string_view after) const;
};

enum class Role : uint8_t { kSystem, kUser, kAssistant };

// One rendering. The roles were checked.
struct Chat {
  std::span<const weir_chat_message> messages;
  bool continues;  // the model's last turn is still open
  bool asks;       // end with the opening of an answer
  std::string_view bos, eos;
  std::pmr::string& out;

  size_t size() const { return messages.size(); }
  std::string_view role_name(size_t i) const { return messages[i].role; }
  Role role(size_t i) const {
    return role_name(i) == "system" ? Role::kSystem : role_name(i) == "user" ? Role::kUser : Role::kAssistant;
  }
  std::string_view content(size_t i) const { return {messages[i].content, messages[i].content_bytes}; }
  bool starts_with_system() const { return !messages.empty() && role(0) == Role::kSystem; }

  template <class... Parts>
  void put(const Parts&... parts) const {
    (out.append(parts), ...);
  }
};

struct ChatFamilyEntry {
  const char* name;
  bool (*matches)(const TemplateText& text);
  Status (*render)(const Chat& chat);
};

std::span<const ChatFamilyEntry> chat_families();  // in the order of the enum, without kNone and kUnknown

}  // namespace weir

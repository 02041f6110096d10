// The table of chat families. Not for other folders.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/status.h"
#include "text/chat_template.h"
#include "text/chat_text.h"

namespace weir {

// A template text and questions about it.
struct TemplateText {
  std::string_view text;

  bool has(std::string_view piece) const { return text.find(piece) != std::string_view::npos; }
  // Whether it has `before`, a line end and `after` in a row. The line end is a real one or, as mostly in Jinja
  // sources, the two characters \n.
  bool has_lines(std::string_view before, std::string_view after) const;
};

enum class Role : uint8_t { kSystem, kUser, kAssistant };

// A stretch of a message. Unlike template text, it never becomes a control token when Chat::put writes it. It does not
// convert to a string_view, so that a family cannot write it as template text by accident.
struct Said {
  std::string_view text;
  // It is still the whole of an answer: if it begins with <think>, this mark and the next </think> are template text.
  // The model wrote them as tokens. Messages of users cannot do so, because only the assistant's role sets this.
  bool may_think = false;
};

inline Said trim(const Said& said) { return {trim(said.text), said.may_think}; }
inline Said trim_end(const Said& said) { return {trim_end(said.text), said.may_think}; }
inline Said trim_front(const Said& said, char c) { return {trim_front(said.text, c), said.may_think}; }
inline Said trim_back(const Said& said, char c) { return {trim_back(said.text, c), said.may_think}; }
inline Said after_thoughts(const Said& said) { return {after_thoughts(said.text)}; }
inline Said thoughts(const Said& said) { return {thoughts(said.text)}; }

// One rendering. The roles were checked.
struct Chat {
  std::span<const weir_chat_message> messages;
  bool continues;  // the model's last turn is still open
  bool asks;       // end with the opening of an answer
  std::string_view bos, eos;
  RenderedChat& out;

  size_t size() const { return messages.size(); }
  Role role(size_t i) const {
    const std::string_view name = messages[i].role;
    return name == "system" ? Role::kSystem : name == "user" ? Role::kUser : Role::kAssistant;
  }
  std::string_view role_name(size_t i) const {
    return role(i) == Role::kSystem ? "system" : role(i) == Role::kUser ? "user" : "assistant";
  }
  Said content(size_t i) const {
    return {{messages[i].content, messages[i].content_bytes}, role(i) == Role::kAssistant};
  }
  bool starts_with_system() const { return !messages.empty() && role(0) == Role::kSystem; }

  // Template text is anything but Said.
  template <class... Parts>
  void put(const Parts&... parts) const {
    (append(parts), ...);
  }

 private:
  void append(std::string_view text) const { out.text.append(text); }
  void append(const Said& said) const;
};

struct ChatFamilyEntry {
  const char* name;
  bool (*matches)(const TemplateText& text);
  Status (*render)(const Chat& chat);
};

std::span<const ChatFamilyEntry> chat_families();  // in the order of the enum, without kNone and kUnknown

}  // namespace weir

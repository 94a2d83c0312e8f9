// Writes one JSON document (RFC 8259) into a string. The caller opens and closes; commas, escapes
// and numbers are the writer's. Text that is not UTF-8 gets U+FFFD in place of each bad byte; a
// number that is not finite is null.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace arcomm::arctl {

class Json {
 public:
  Json& begin_object() { return open('{'); }
  Json& end_object() { return close('}'); }
  Json& begin_array() { return open('['); }
  Json& end_array() { return close(']'); }
  Json& key(std::string_view name);

  Json& value(std::string_view text);
  Json& value(const std::string& text) { return value(std::string_view(text)); }
  Json& value(const char* text) { return value(std::string_view(text)); }
  Json& value(bool truth);
  Json& value(double number);
  template <std::integral T>
  Json& value(T number) {
    if constexpr (std::signed_integral<T>) {
      return integer(static_cast<std::int64_t>(number));
    } else {
      return natural(static_cast<std::uint64_t>(number));
    }
  }

  template <typename T>
  Json& field(std::string_view name, const T& content) {
    key(name);
    return value(content);
  }

  // The document; the writer is empty afterwards. Precondition: everything opened was closed.
  std::string take() { return std::exchange(text_, {}); }

 private:
  Json& open(char bracket);
  Json& close(char bracket);
  Json& integer(std::int64_t number);
  Json& natural(std::uint64_t number);
  void separate();
  void quote(std::string_view text);

  std::string text_;
  std::vector<bool> has_members_;  // one per open bracket
  bool after_key_ = false;
};

}  // namespace arcomm::arctl

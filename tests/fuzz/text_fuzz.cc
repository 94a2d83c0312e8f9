// Names, reasons and other words of a stranger's: whatever bytes they are, what people and log
// readers get is valid UTF-8 on one line, within its bounds, and safe text stays as it is.
#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/telemetry/log/escape.h"
#include "proto/text.h"

namespace {

using namespace arcomm;  // NOLINT(google-build-using-namespace)

void check(bool holds) {
  if (!holds) __builtin_trap();
}

void check_shown(std::string_view text) {
  while (!text.empty()) {
    const CodePoint character = first_code_point(text);
    check(character.bytes != 0 && !is_unprintable(character.value));
    text.remove_prefix(character.bytes);
  }
}

bool is_whole(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = first_code_point(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

// The inside of a JSON string: no quote that ends it, no escape that is cut.
void check_json(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    check(text[i] != '"');
    if (text[i] != '\\') continue;
    check(++i < text.size());
    if (text[i] == '"' || text[i] == '\\') continue;
    check(text[i] == 'u' && i + 4 < text.size());
    for (const char digit : text.substr(i + 1, 4))
      check(std::string_view("0123456789abcdef").find(digit) != std::string_view::npos);
    i += 4;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t most = data[0];
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);

  const std::string safe = safe_text(text, most);
  check(safe.size() <= most);
  check_shown(safe);
  check(safe_text(safe, most) == safe);

  const std::string_view cut = cut_text(text, most);
  check(cut.size() <= most && text.starts_with(cut));
  if (is_whole(text)) check(is_whole(cut) && (text.size() <= most || cut.size() + 4 > most));

  std::string logged = "before";
  append_text_escaped(logged, text, most);
  check(logged == "before" + safe);

  std::string json;
  append_json_escaped(json, text, most);
  check(json.size() <= most);
  check_shown(json);
  check_json(json);
  return 0;
}

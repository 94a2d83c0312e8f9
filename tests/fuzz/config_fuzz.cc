// Any bytes as a configuration file, as variables and as flags: no crash, and what is accepted can
// be printed and read back as the same settings.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "config/settings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = bytes.find('\0');
  const std::string_view toml = bytes.substr(0, cut);
  arcomm::LoadRequest request;
  if (cut != std::string_view::npos) {
    const std::string rest(bytes.substr(cut + 1));
    request.environment.push_back("ARCOMM_" + rest);
    request.flags.push_back(rest);
  }
  // Alone, and with the rest as a variable and as a flag, so that one being wrong does not hide the
  // other.
  for (const auto& loaded :
       {arcomm::parse_settings(toml, "fuzz"),
        arcomm::parse_settings(toml, "fuzz", {.environment = request.environment}),
        arcomm::parse_settings(toml, "fuzz", {.flags = request.flags})}) {
    if (!loaded) {
      if (loaded.error().message.empty()) std::abort();
      continue;
    }
    const auto again = arcomm::parse_settings(arcomm::render_values(*loaded), "printed");
    if (!again || !(again->settings == loaded->settings)) std::abort();
  }
  return 0;
}

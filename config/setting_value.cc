// How a row judges and stores a value, and how it shows one.
#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#include "config/network_rules.h"
#include "config/settings_table.h"
#include "config/toml_text.h"

namespace arcomm {
namespace {

struct Multiple {
  std::string_view suffix;
  std::uint64_t factor;
};

std::span<const Multiple> multiples_of(SettingUnit unit) {
  static constexpr Multiple kBytes[] = {
      {"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30}, {"TiB", 1ull << 40}, {"B", 1}};
  static constexpr Multiple kMilliseconds[] = {{"ms", 1}, {"s", 1000}, {"min", 60'000}};
  static constexpr Multiple kMicroseconds[] = {{"us", 1}, {"ms", 1000}, {"s", 1'000'000}};
  switch (unit) {
    case SettingUnit::None:
      return {};
    case SettingUnit::Bytes:
      return kBytes;
    case SettingUnit::Milliseconds:
      return kMilliseconds;
    case SettingUnit::Microseconds:
      return kMicroseconds;
  }
  return {};
}

std::string_view unit_word(SettingUnit unit) {
  switch (unit) {
    case SettingUnit::None:
      return "";
    case SettingUnit::Bytes:
      return " bytes";
    case SettingUnit::Milliseconds:
      return " ms";
    case SettingUnit::Microseconds:
      return " us";
  }
  return "";
}

// "64MiB" -> 67108864; nullopt for anything else than digits and one suffix of the unit, or beyond
// 64 bits.
std::optional<std::uint64_t> parse_amount(std::string_view text, SettingUnit unit) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, number);
  if (failure != std::errc{}) return std::nullopt;
  std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  if (suffix.empty()) return number;
  if (suffix.front() == ' ') suffix.remove_prefix(1);
  for (const Multiple& multiple : multiples_of(unit)) {
    if (suffix != multiple.suffix) continue;
    std::uint64_t product = 0;
    if (__builtin_mul_overflow(number, multiple.factor, &product)) return std::nullopt;
    return product;
  }
  return std::nullopt;
}

std::string as_written(const SettingValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return toml_quoted(*text);
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  return std::get<bool>(value) ? "true" : "false";
}

std::optional<std::string> refuse(const SettingRow& row, const SettingValue& value) {
  return "expected " + allowed_text(row) + ", got " + as_written(value);
}

std::optional<std::string> store(const SettingRow& row, const TextSetting& kind,
                                 const SettingValue& value, Settings& settings) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr || !kind.accepts(*text)) return refuse(row, value);
  kind.field(settings) = *text;
  return std::nullopt;
}

std::optional<std::string> store(const SettingRow& row, const NumberSetting& kind,
                                 const SettingValue& value, Settings& settings) {
  std::optional<std::uint64_t> number;
  if (const auto* integer = std::get_if<std::int64_t>(&value); integer != nullptr && *integer >= 0)
    number = static_cast<std::uint64_t>(*integer);
  if (const auto* text = std::get_if<std::string>(&value); text != nullptr)
    number = parse_amount(*text, row.unit);
  if (!number || *number < kind.min || *number > kind.max) return refuse(row, value);
  if (kind.power_of_two && (*number & (*number - 1)) != 0) return refuse(row, value);
  kind.field(settings) = *number;
  return std::nullopt;
}

std::optional<std::string> store(const SettingRow& row, const SwitchSetting& kind,
                                 const SettingValue& value, Settings& settings) {
  const auto* flag = std::get_if<bool>(&value);
  if (flag == nullptr) return refuse(row, value);
  kind.field(settings) = *flag;
  return std::nullopt;
}

std::optional<std::string> store(const SettingRow& row, const ChoiceSetting& kind,
                                 const SettingValue& value, Settings& settings) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return refuse(row, value);
  const auto found = std::find(kind.names.begin(), kind.names.end(), *text);
  if (found == kind.names.end()) return refuse(row, value);
  kind.set(settings, static_cast<std::uint8_t>(found - kind.names.begin()));
  return std::nullopt;
}

std::optional<std::string> store(const SettingRow& row, const LimitSetting& kind,
                                 const SettingValue& value, Settings& settings) {
  const auto* text = std::get_if<std::string>(&value);
  for (const LimitSetting::Word& word : kind.words) {
    if (text == nullptr || *text != word.name) continue;
    kind.field(settings) = word.value;
    return std::nullopt;
  }
  std::optional<std::uint64_t> number;
  if (const auto* integer = std::get_if<std::int64_t>(&value); integer != nullptr && *integer >= 0)
    number = static_cast<std::uint64_t>(*integer);
  if (text != nullptr) number = parse_amount(*text, row.unit);
  if (!number || *number > static_cast<std::uint64_t>(kind.max)) return refuse(row, value);
  kind.field(settings) = static_cast<std::int64_t>(*number);
  return std::nullopt;
}

struct Allowed {
  SettingUnit unit;
  std::string operator()(const TextSetting& kind) const { return std::string(kind.allowed); }
  std::string operator()(const NumberSetting& kind) const {
    std::ostringstream out;
    out << (kind.power_of_two ? "a power of two from " : "an integer from ") << kind.min << " to "
        << kind.max << unit_word(unit);
    write_units(out);
    return out.str();
  }
  std::string operator()(const SwitchSetting&) const { return "true or false"; }
  std::string operator()(const ChoiceSetting& kind) const {
    std::string words = "one of";
    for (std::string_view name : kind.names) {
      words += words.ends_with("of") ? " " : ", ";
      words += toml_quoted(name);
    }
    return words;
  }
  std::string operator()(const LimitSetting& kind) const {
    std::ostringstream out;
    for (const LimitSetting::Word& word : kind.words) out << toml_quoted(word.name) << ", ";
    out << "or an integer from 0 to " << kind.max << unit_word(unit);
    write_units(out);
    return out.str();
  }
  void write_units(std::ostream& out) const {
    if (unit == SettingUnit::None) return;
    out << " (or a text with a unit:";
    for (const Multiple& multiple : multiples_of(unit)) out << ' ' << multiple.suffix;
    out << ')';
  }
};

}  // namespace

std::string allowed_text(const SettingRow& row) {
  return std::visit(Allowed{row.unit}, row.kind);
}

std::optional<std::string> apply_setting(const SettingRow& row, const SettingValue& value,
                                         Settings& settings) {
  return std::visit([&](const auto& kind) { return store(row, kind, value, settings); }, row.kind);
}

std::optional<std::string> apply_setting_text(const SettingRow& row, std::string_view text,
                                              Settings& settings) {
  SettingValue value = std::string(text);
  if (std::holds_alternative<SwitchSetting>(row.kind)) {
    if (text == "true" || text == "1") value = true;
    if (text == "false" || text == "0") value = false;
  }
  return apply_setting(row, value, settings);
}

std::string setting_toml(const SettingRow& row, const Settings& settings) {
  Settings& readable =
      const_cast<Settings&>(settings);  // field() hands out the member; it is only read here
  if (const auto* text = std::get_if<TextSetting>(&row.kind))
    return toml_quoted(text->field(readable));
  if (const auto* number = std::get_if<NumberSetting>(&row.kind))
    return std::to_string(number->field(readable));
  if (const auto* flag = std::get_if<SwitchSetting>(&row.kind))
    return flag->field(readable) ? "true" : "false";
  if (const auto* limit = std::get_if<LimitSetting>(&row.kind)) {
    const std::int64_t value = limit->field(readable);
    for (const LimitSetting::Word& word : limit->words) {
      if (word.value == value) return toml_quoted(word.name);
    }
    return std::to_string(value);
  }
  const auto& choice = std::get<ChoiceSetting>(row.kind);
  return toml_quoted(choice.names[choice.get(settings)]);
}

namespace {

// What the ring is told to have under way is taken from staging, and means nothing beyond the
// product that bounds it.
std::optional<SettingConflict> find_ring_conflict(const Settings& settings) {
  const Settings::Ring& ring = settings.ring;
  const std::uint64_t chunk = std::max<std::uint64_t>(ring.chunk_bytes, 1);
  const std::uint64_t chunks = std::max<std::uint64_t>(ring.num_chunks, 1);
  std::string what, name;
  for (const auto& [key, value] : {std::pair{"ring.chunk_bytes", ring.chunk_bytes},
                                   std::pair{"ring.num_chunks", ring.num_chunks}}) {
    if (value == 0) continue;
    if (name.empty()) name = key;
    what.append(what.empty() ? "" : " times ").append(key);
    what.append(" (").append(std::to_string(value)).append(")");
  }
  const std::uint64_t under_way = chunk * chunks;  // both are bounded: no overflow
  if (under_way > settings.net.staging_bytes) {
    return SettingConflict{name, what + " is above net.staging_bytes (" +
                                     std::to_string(settings.net.staging_bytes) +
                                     "): lower the first or raise the second"};
  }
  if (ring.max_bdp_bytes != 0 && under_way > ring.max_bdp_bytes) {
    return SettingConflict{name, what + " is above ring.max_bdp_bytes (" +
                                     std::to_string(ring.max_bdp_bytes) +
                                     "): lower the first or raise the second"};
  }
  return std::nullopt;
}

}  // namespace

std::optional<SettingConflict> find_conflict(const Settings& settings) {
  if (settings.op.default_timeout_ms > settings.op.max_timeout_ms) {
    return SettingConflict{
        "op.default_timeout_ms",
        "op.default_timeout_ms (" + std::to_string(settings.op.default_timeout_ms) +
            ") is above op.max_timeout_ms (" + std::to_string(settings.op.max_timeout_ms) +
            "): lower the first or raise the second"};
  }
  if (std::optional<SettingConflict> conflict = find_conflict_of_peers(settings)) return conflict;
  return find_ring_conflict(settings);
}

}  // namespace arcomm

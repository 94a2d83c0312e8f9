#include "daemon/plan/codec_words.h"

#include <fmt/format.h>

namespace arcomm {
namespace {

const char* why_none_pays(CodecPlace place) {
  switch (place) {
    case CodecPlace::OneHost:
      return "nothing travels between ranks of one host, so that a codec costs time and saves none";
    case CodecPlace::Gpus:
      return "no kernel of GPUs takes a codec yet";
    case CodecPlace::SeveralNodes:
      return "no way between nodes takes a codec yet";
  }
  return "";
}

// A named codec is taken, or refused by name: what is served says the place.
std::string words_of_name(Codec codec, CodecPlace place) {
  const std::string name(text_of(codec));
  return place == CodecPlace::OneHost
             ? name + " at every size, as asked; it changes results, and saves no time: " +
                   why_none_pays(place)
             : name + " is refused: " + why_none_pays(place);
}

std::string size_words(const CodingRow& row) {
  return row.least_bytes == 0 ? "" : fmt::format(" from {} bytes on", row.least_bytes);
}

}  // namespace

std::string codec_words(const Coding& coding, CodecPlace place, const LaunchTable& table) {
  if (!coding.any()) return "";
  if (!coding.error_class.any()) return words_of_name(coding.codec, place);
  if (table.coding().empty()) return std::string("none at any size: ") + why_none_pays(place);
  std::string text;
  for (const CodingRow& row : table.coding()) {
    if (!honours(row.codec, coding.error_class, row.times)) continue;
    text += (text.empty() ? "" : ", else ") + std::string(text_of(row.codec)) + size_words(row);
  }
  return text.empty() ? "none at any size: no codec honours it by its published bounds"
                      : text + ", else none";
}

std::string codec_words(const Coding& coding, CodecPlace place, const LaunchTable& table,
                        const LaunchKey& key, Codec& codec) {
  codec = Codec::None;
  if (!coding.any()) return "";
  if (!coding.error_class.any()) {
    if (!codec_serves(coding.codec, key.op, key.dtype))
      return fmt::format("{} is refused: {}", text_of(coding.codec), kServedByCodecs);
    if (place == CodecPlace::OneHost) codec = coding.codec;
    return words_of_name(coding.codec, place);
  }
  codec = table.codec_for(coding.error_class, key);
  if (codec != Codec::None)
    return fmt::format("{}: the fastest that pays and promises {}", text_of(codec),
                       to_string(coding));
  if (table.coding().empty()) return std::string("none: ") + why_none_pays(place);
  return fmt::format("none: no codec that pays at {} bytes of {} promises {}", key.bytes,
                     text_of(key.dtype), to_string(coding));
}

std::string codec_bounds_text() {
  std::string text =
      "codec        bits   SNR (dB)        error / largest of block\n"
      "                    once   twice    once       twice\n";
  for (const CodecBound& bound : kCodecBounds) {
    text += fmt::format("{:<11} {:>5.1f}  {:>5.1f}  {:>5.1f}  {:>9.5f}  {:>9.5f}\n",
                        text_of(bound.codec), bound.half_bits / 2.0, snr_db_of(bound.codec, 1),
                        snr_db_of(bound.codec, 2), relative_error_of(bound.codec, 1),
                        relative_error_of(bound.codec, 2));
  }
  return text;
}

}  // namespace arcomm

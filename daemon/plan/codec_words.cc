#include "daemon/plan/codec_words.h"

#include <fmt/format.h>

#include <algorithm>

namespace arcomm {
namespace {

const char* why_none_pays(CodecPlace place) {
  switch (place) {
    case CodecPlace::OneHost:
      return "nothing travels between ranks of one host, so that a codec costs time and saves none";
    case CodecPlace::Gpus:
      return "none is known to be faster there";
    case CodecPlace::SeveralHosts:
    case CodecPlace::GpusOfSeveralNodes:
      return "none is known to be faster there, so that it is to be named";
  }
  return "";
}

// The longest operation of the type that the table has a codec's kernel for; 0: none.
std::uint64_t most_coded_bytes(const LaunchTable& table, Codec codec, DType dtype) {
  std::uint64_t most = 0;
  for (const LaunchRow& row : table.rows()) {
    if (row.path == LaunchPath::InStream && (row.codecs & bit_of(codec)) != 0 &&
        (row.dtypes & bit_of(dtype)) != 0)
      most = std::max(most, row.most_bytes);
  }
  return most;
}

std::string words_on_gpus(Codec codec, const LaunchTable& table) {
  const std::string name(text_of(codec));
  const std::uint64_t of_halves = most_coded_bytes(table, codec, DType::Float16),
                      of_floats = most_coded_bytes(table, codec, DType::Float32);
  if (of_halves == 0) {
    return name +
           " is refused: only in-stream kernels take codecs, between ranks whose GPUs' stores of "
           "128 bytes arrive whole, where gpu.codecs is on";
  }
  return fmt::format(
      "{} as asked, in the ranks' own streams: up to {} MB of float16 and bfloat16, {} MB of "
      "float32; each element is quantized {} on its way",
      name, of_halves >> 20, of_floats >> 20, table.ranks() == 2 ? "once" : "twice");
}

// A named codec is taken, or refused by name: what is served says the place.
std::string words_of_name(Codec codec, CodecPlace place, const LaunchTable& table,
                          std::string_view why_none) {
  const std::string name(text_of(codec));
  switch (place) {
    case CodecPlace::Gpus:
      return words_on_gpus(codec, table);
    case CodecPlace::OneHost:
      return name + " at every size, as asked; it changes results, and saves no time: " +
             why_none_pays(place);
    case CodecPlace::SeveralHosts:
      return fmt::format(
          "{} at every size, as asked: {:.3g} bits of an element travel; a node's sum is quantized "
          "once, and where each node combines a part of it (direct) the result once more; around a "
          "ring (net.algorithm) a sum at every node that it passes",
          name, bound_of(codec).half_bits / 2.0);
    case CodecPlace::GpusOfSeveralNodes:
      if (!table.takes_codec({.codec = codec}))
        return fmt::format("{} is refused between GPUs of several nodes: {}", name, why_none);
      return fmt::format(
          "{} at every size, as asked: by exchange, {:.3g} bits of an element travel to each node; "
          "a node's sum is quantized once",
          name, bound_of(codec).half_bits / 2.0);
  }
  return name;
}

std::string size_words(const CodingRow& row) {
  const bool has_halves = (row.dtypes & bit_of(DType::BFloat16)) != 0,
             has_floats = (row.dtypes & bit_of(DType::Float32)) != 0;
  const char* types = has_halves && has_floats ? "" : has_floats ? " of float32" : " of 16 bits";
  return row.least_bytes == 0 ? "" : fmt::format(" from {} bytes{} on", row.least_bytes, types);
}

}  // namespace

std::string why_no_codecs(const NetworkPolicy& policy) {
  if (policy.gpu_codecs) return "";
  if (policy.no_gpu_codecs_on.empty())
    return "not all of its nodes are known to allow codecs: gpu.codecs must be on at each of them, "
           "and they of one release of arcommd";
  return "node " + policy.no_gpu_codecs_on +
         " does not allow codecs: gpu.codecs is off there, or its release of arcommd does not tell";
}

std::string why_no_codec_pays(const RanksOnNodes& where, const NetworkPolicy& policy) {
  if (where.on_gpus && !policy.gpu_codecs) return why_no_codecs(policy);
  if (policy.coding_rules != kCodingRules)
    return "its nodes or its ranks' libraries are of several releases, which may judge it "
           "differently: a codec is to be named";
  if (goes_round(where, policy))
    return "around a ring (net.algorithm) every node quantizes it anew: a codec is to be named";
  if (policy.link_bytes_per_second == 0)
    return "how fast the network is was not measured where it meets (arctl tune --network), so "
           "that a codec is to be named";
  return fmt::format(
      "at the {:.3g} GB/s that arctl tune --network measured where it meets coding takes longer "
      "than what it saves",
      static_cast<double>(policy.link_bytes_per_second) / 1e9);
}

std::string codec_words(const Coding& coding, CodecPlace place, const LaunchTable& table,
                        std::string_view why_none) {
  if (!coding.any()) return "";
  if (!coding.error_class.any()) return words_of_name(coding.codec, place, table, why_none);
  if (table.coding().empty())
    return fmt::format("none at any size: {}", why_none.empty() ? why_none_pays(place) : why_none);
  std::string text;
  for (const CodingRow& row : table.coding()) {
    if (!honours(row.codec, coding.error_class, row.times)) continue;
    text += (text.empty() ? "" : ", else ") + std::string(text_of(row.codec)) + size_words(row);
  }
  return text.empty() ? "none at any size: no codec honours it by its published bounds"
                      : text + ", else none";
}

std::string codec_words(const Coding& coding, CodecPlace place, const LaunchTable& table,
                        const LaunchKey& key, Codec& codec, std::string_view why_none) {
  codec = Codec::None;
  if (!coding.any()) return "";
  if (!coding.error_class.any()) {
    if (!codec_serves(coding.codec, key.op, key.dtype))
      return fmt::format("{} is refused: {}", text_of(coding.codec), kServedByCodecs);
    LaunchKey coded = key;
    coded.codec = coding.codec;
    if (place == CodecPlace::OneHost || place == CodecPlace::SeveralHosts ||
        table.takes_codec(coded))
      codec = coding.codec;
    return words_of_name(coding.codec, place, table, why_none);
  }
  codec = table.codec_for(coding.error_class, key);
  if (codec != Codec::None)
    return fmt::format("{}: the fastest that pays and promises {}", text_of(codec),
                       to_string(coding));
  if (table.coding().empty())
    return fmt::format("none: {}", why_none.empty() ? why_none_pays(place) : why_none);
  return fmt::format("none: no codec that pays at {} bytes of {} promises {}", key.bytes,
                     text_of(key.dtype), to_string(coding));
}

std::string codec_bounds_text() {
  std::string text =
      "codec        bits   SNR (dB)        error / largest of block\n"
      "                    once   twice    once       twice\n";
  for (const Codec codec : kRealCodecs) {
    text += fmt::format("{:<11} {:>5.1f}  {:>5.1f}  {:>5.1f}  {:>9.5f}  {:>9.5f}\n", text_of(codec),
                        bound_of(codec).half_bits / 2.0, snr_db_of(codec, 1), snr_db_of(codec, 2),
                        relative_error_of(codec, 1), relative_error_of(codec, 2));
  }
  return text;
}

}  // namespace arcomm

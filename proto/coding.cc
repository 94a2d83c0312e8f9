#include "proto/coding.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace arcomm {
namespace {

constexpr double kTwiceTheNoise = 3.01;  // dB

std::string short_number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

bool is_wish(double value) {
  return std::isfinite(value) && value >= 0;
}

}  // namespace

const char* find_fault(const Coding& coding) {
  if (static_cast<unsigned>(coding.codec) >= kCodecs) return kUnknownCodec;
  if (!is_wish(coding.error_class.least_snr_db))
    return "the least signal over noise is no number of decibels from 0, which is none, on";
  if (!is_wish(coding.error_class.most_relative_error))
    return "the greatest relative error is no number from 0, which is none, on";
  if (coding.codec != Codec::None && coding.error_class.any())
    return "a codec is asked for and an error class, too: give one of the two";
  return nullptr;
}

std::string to_string(const Coding& coding) {
  const ErrorClass& wanted = coding.error_class;
  if (!wanted.any()) return std::string(text_of(coding.codec));
  std::string text;
  if (wanted.least_snr_db != 0) text = "at least " + short_number(wanted.least_snr_db) + " dB";
  if (wanted.most_relative_error != 0) {
    text += (text.empty() ? "at most " : " and at most ") +
            short_number(wanted.most_relative_error) + " of a block's largest";
  }
  return text;
}

double snr_db_of(Codec codec, unsigned times) {
  return bound_of(codec).snr_db - (times > 1 ? kTwiceTheNoise : 0);
}

double relative_error_of(Codec codec, unsigned times) {
  const double once = bound_of(codec).relative_error;
  return times > 1 ? once + once * (1 + once) : once;
}

bool honours(Codec codec, const ErrorClass& wanted, unsigned times) {
  if (codec == Codec::None) return true;
  if (wanted.least_snr_db != 0 && snr_db_of(codec, times) < wanted.least_snr_db) return false;
  return wanted.most_relative_error == 0 ||
         relative_error_of(codec, times) <= wanted.most_relative_error;
}

}  // namespace arcomm

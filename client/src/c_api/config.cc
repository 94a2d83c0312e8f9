#include "client/src/c_api/config.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace arcomm::client {
namespace {

// What proto/codec.h has a row for arclient.h has a name for.
#define X(name, ...) \
  static_assert(static_cast<int>(arcCodec##name) == static_cast<int>(Codec::name));
ARC_CODECS(X)
#undef X

constexpr std::size_t kMostBytes = 4096;  // beyond what any version will have

Error unknown_option() {
  return error(ErrorCode::InvalidArgument, Reason::Version,
               "config has an option set that this libarclient does not know: load a newer one, or "
               "leave the option out");
}

// Copies what of the caller's struct this library knows. A caller built against an older header has
// fewer fields, those of `first` bytes at least. One built against a newer header has more: one
// that is set and not known here may change the result, and is no detail to leave out.
template <typename Config>
Status take_known(const Config* config, std::size_t first, const char* initializer, Config& known) {
  const std::size_t size = config->struct_size;
  if (size < first || size > kMostBytes) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "config->struct_size is ", size,
                 ": start from ", initializer);
  }
  const std::span bytes(reinterpret_cast<const unsigned char*>(config), size);
  std::memcpy(&known, bytes.data(), std::min(size, sizeof(known)));
  if (size > sizeof(known) && std::any_of(bytes.begin() + sizeof(known), bytes.end(),
                                          [](unsigned char byte) { return byte != 0; })) {
    return unknown_option();
  }
  return {};
}

}  // namespace

Result<std::optional<Coding>> read_config(const arcAllReduceConfig_t* config) {
  if (config == nullptr) return std::optional<Coding>();
  arcAllReduceConfig_t known = ARC_ALL_REDUCE_CONFIG_INITIALIZER;
  ARC_RETURN_IF_ERROR(take_known(config, offsetof(arcAllReduceConfig_t, least_snr_db),
                                 "ARC_ALL_REDUCE_CONFIG_INITIALIZER", known));
  if (known.reserved != 0) return unknown_option();
  // A program in C may have set any number, which as the enum's value would be none.
  std::int32_t codec = 0;
  static_assert(sizeof(codec) == sizeof(known.codec));
  std::memcpy(&codec, &known.codec, sizeof(codec));
  if (codec < 0 || static_cast<unsigned>(codec) >= kCodecs) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "codec is ", codec,
                 "; the codecs are 0 (none) to ", kCodecs - 1, " (", text_of(kRealCodecs.back()),
                 ")");
  }
  const Coding coding{.codec = static_cast<Codec>(codec),
                      .error_class = {known.least_snr_db, known.most_relative_error}};
  if (const char* fault = find_fault(coding)) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, fault, ": codec ",
                 text_of(coding.codec), ", least_snr_db ", known.least_snr_db,
                 ", most_relative_error ", known.most_relative_error);
  }
  return std::optional(coding);
}

Result<CommunicatorConfig> read_config(const arcCommConfig_t* config) {
  if (config == nullptr) return CommunicatorConfig{};
  arcCommConfig_t known = ARC_COMM_CONFIG_INITIALIZER;
  ARC_RETURN_IF_ERROR(take_known(config, offsetof(arcCommConfig_t, most_sms),
                                 "ARC_COMM_CONFIG_INITIALIZER", known));
  if (known.reserved != 0) return unknown_option();
  const Result<std::optional<Coding>> coding = read_config(known.all_reduce);
  if (!coding) return coding.error();
  return CommunicatorConfig{.all_reduce = coding->value_or(Coding{}), .most_sms = known.most_sms};
}

}  // namespace arcomm::client

// arcInit to arcFinalize, and what tells a caller why a call failed.
#include "client/src/session/library.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "client/include/arclient.h"
#include "client/src/c_api/entry_point.h"
#include "proto/text.h"

namespace arcomm::client {
namespace {

static_assert(static_cast<int>(arcUnauthenticated) == static_cast<int>(ErrorCode::Unauthenticated));
static_assert(static_cast<int>(arcReasonBug) == static_cast<int>(Reason::Bug));
static_assert(static_cast<int>(arcReasonReordered) == static_cast<int>(Reason::Reordered));

}  // namespace
}  // namespace arcomm::client

using namespace arcomm;  // NOLINT(google-build-using-namespace): this file is the translation
using namespace arcomm::client;  // NOLINT(google-build-using-namespace)

extern "C" {

arcResult_t arcInit(const arcConfig_t* config) {
  return guarded([&]() -> Status {
    LibraryConfig wanted;
    if (config != nullptr) {
      // A caller built against an older header has fewer fields; a newer one has more.
      if (config->struct_size < offsetof(arcConfig_t, device)) {
        return error(ErrorCode::InvalidArgument, Reason::BadValue, "config->struct_size is ",
                     config->struct_size, ": start from ARC_CONFIG_INITIALIZER");
      }
      arcConfig_t known = ARC_CONFIG_INITIALIZER;
      std::memcpy(&known, config, std::min(config->struct_size, sizeof(known)));
      if (known.runtime_dir != nullptr) wanted.runtime_dir = known.runtime_dir;
      if (known.device != nullptr) wanted.device = known.device;
      wanted.timeout_ms = known.timeout_ms;
    }
    return Library::instance().init(std::move(wanted));
  });
}

arcResult_t arcFinalize(void) {
  return guarded([] { return Library::instance().finalize(); });
}

arcResult_t arcGetVersion(int* version) {
  return guarded([&]() -> Status {
    if (version == nullptr) return null_argument("version");
    *version = ARC_VERSION_CODE;
    return {};
  });
}

// A program in C may pass any number; C++'s compilers may take it for one of the enum's.
__attribute__((no_sanitize("enum"))) const char* arcGetErrorString(arcResult_t result) {
  if (result == arcInProgress) return "in progress";
  // The texts are literals, and so end in a zero.
  return text_of(static_cast<ErrorCode>(result >= 0 && result <= arcUnauthenticated ? result : 255))
      .data();
}

__attribute__((no_sanitize("enum"))) const char* arcGetReasonString(arcReason_t reason) {
  return text_of(static_cast<Reason>(reason >= 0 && reason <= arcReasonReordered ? reason : 255))
      .data();
}

const char* arcGetLastError(arcComm_t comm) {
  static_cast<void>(comm);
  thread_local std::string text;
  const Error& last = last_error().error;
  text = last.code == ErrorCode::Ok ? std::string() : last.to_string();
  return text.c_str();
}

arcResult_t arcGetLastErrorInfo(arcErrorInfo_t* info) {
  if (info == nullptr || info->struct_size < sizeof(std::size_t)) return arcInvalidArgument;
  const LastError& last = last_error();
  arcErrorInfo_t known{};
  known.struct_size = info->struct_size;
  known.code = static_cast<arcResult_t>(last.error.code);
  known.reason = static_cast<arcReason_t>(last.error.reason);
  known.rank = last.error.rank;
  known.seq = last.seq;
  const std::string_view whole = cut_text(last.error.message, sizeof(known.message) - 1);
  whole.copy(known.message, whole.size());
  std::memcpy(info, &known, std::min(info->struct_size, sizeof(known)));
  return arcSuccess;
}

}  // extern "C"

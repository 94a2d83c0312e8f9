#include "client/src/gpu/post_mode.h"

#include <cstdlib>
#include <string_view>

namespace arcomm::client {

Result<PostMode> post_mode_from_environment() {
  const char* const value = std::getenv("ARCOMM_POST");
  const std::string_view word = value != nullptr ? value : "";
  if (word.empty() || word == "kernel") return PostMode::Kernel;
  if (word == "memops") return PostMode::Memory;
  return error(ErrorCode::InvalidArgument, Reason::BadValue, "ARCOMM_POST is \"", word,
               "\": kernel or memops expected");
}

}  // namespace arcomm::client

#include "daemon/backend.h"

#include "daemon/mps_server.h"

namespace arcomm {

Backend::~Backend() = default;
Backend::Backend(Backend&&) noexcept = default;
Backend& Backend::operator=(Backend&&) noexcept = default;

}  // namespace arcomm

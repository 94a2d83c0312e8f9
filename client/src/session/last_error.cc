#include "client/src/session/last_error.h"

namespace arcomm::client {

LastError& last_error() {
  thread_local LastError last;
  return last;
}

}  // namespace arcomm::client

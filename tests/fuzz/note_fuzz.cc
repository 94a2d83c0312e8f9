// What a client writes down of its calls, beside its mailbox: of any bytes the daemon reads only an
// operation that could be, and of the number that it asked for; and what a library writes is read
// as it was meant.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "proto/gpu/call_note.h"

namespace {

using namespace arcomm;  // NOLINT(google-build-using-namespace)

void check(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  CallNote place;
  std::memcpy(static_cast<void*>(&place), data, std::min(size, sizeof(place)));
  const std::uint32_t number = place.number;
  check(!read_note(place, number + 1));
  const auto noted = read_note(place, number);
  if (!noted) return 0;
  check(number != 0 && noted->call != 0 && find_fault(noted->spec) == nullptr);
  CallNote again;
  write_note(again, number, *noted);
  check(std::memcmp(&again, &place, sizeof(place)) == 0);
  return 0;
}

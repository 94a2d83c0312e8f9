// How the file that the daemon lends its clients holds the images of in-stream kernels
// (kernels/in_stream/kernels.h): a directory at its start, then the images, each on a page of its
// own. A client loads the one without a codec when it joins a communicator, and a codec's when an
// operation first asks for it: kernels that are loaded cost time, and most clients use no codec.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "proto/types.h"

namespace arcomm {

// By codec; of None the kernels that need none. Empty: there is none.
using InStreamImages = std::array<std::span<const std::byte>, kCodecs>;

struct InStreamDirectory {
  struct Place {
    std::uint64_t offset = 0, bytes = 0;  // in the file; of no image 0
  };
  Place images[kCodecs] = {};  // by codec

  static constexpr std::uint64_t kPage = 4096;
  // The file's length is then the end of the last one.
  static constexpr InStreamDirectory of(const InStreamImages& images) {
    InStreamDirectory made;
    std::uint64_t at = kPage;
    for (std::size_t codec = 0; codec < kCodecs; ++codec) {
      if (images[codec].empty()) continue;
      made.images[codec] = {at, images[codec].size()};
      at += (images[codec].size() + kPage - 1) / kPage * kPage;
    }
    return made;
  }
  // Whether a file of so many bytes has the codec's image, all of it, where a driver can read it.
  constexpr bool has(Codec codec, std::uint64_t file_bytes) const {
    const Place& place = images[static_cast<std::size_t>(codec)];
    return place.bytes != 0 && place.offset % kPage == 0 && place.offset >= sizeof(*this) &&
           place.offset <= file_bytes && place.bytes <= file_bytes - place.offset;
  }
};
static_assert(std::is_trivially_copyable_v<InStreamDirectory> &&
              sizeof(InStreamDirectory) <= InStreamDirectory::kPage);

}  // namespace arcomm

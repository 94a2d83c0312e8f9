#include "daemon/comm/mismatch.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>

namespace arcomm {
namespace {

// Different parts of the same whole.
bool is_cut_differently(const Signature& a, const Signature& b) {
  if (a.send_count == b.send_count && a.first_element == b.first_element) return false;
  Signature part = a;
  part.send_count = b.send_count;
  part.recv_count = b.recv_count;
  part.first_element = b.first_element;
  return part == b;
}

// "count 7 and 8, op max and sum", in a fixed size: what does not fit is cut.
class Differences {
 public:
  void add(const char* what, std::uint64_t late, std::uint64_t first) {
    if (late != first) print("%s%s %" PRIu64 " and %" PRIu64, comma(), what, late, first);
  }
  void add_rank(const char* what, Rank late, Rank first) {
    if (late != first) print("%s%s %d and %d", comma(), what, late, first);
  }
  template <typename Named>
  void add_named(const char* what, Named late, Named first) {
    if (late == first) return;
    print("%s%s %s and %s", comma(), what, text_of(late).data(),  // literals: zero-terminated
          text_of(first).data());
  }
  const char* text() const { return text_.data(); }

 private:
  const char* comma() const { return used_ == 0 ? "" : ", "; }
  [[gnu::format(printf, 2, 3)]] void print(const char* format, ...) {
    __builtin_va_list arguments;
    __builtin_va_start(arguments, format);
    const int length =
        std::vsnprintf(text_.data() + used_, text_.size() - used_, format, arguments);
    __builtin_va_end(arguments);
    used_ = std::min(text_.size() - 1, used_ + static_cast<std::size_t>(std::max(length, 0)));
  }

  std::array<char, 128> text_{};
  std::size_t used_ = 0;
};

// "rank 1", "rank 1 (node-b)".
class Named {
 public:
  explicit Named(const NamedRank& who) {
    if (who.node.empty()) {
      std::snprintf(text_.data(), text_.size(), "rank %d", who.rank);
    } else {
      // Room is needed for what differs.
      std::snprintf(text_.data(), text_.size(), "rank %d (%.*s)", who.rank,
                    static_cast<int>(std::min<std::size_t>(who.node.size(), 24)), who.node.data());
    }
  }
  const char* text() const { return text_.data(); }

 private:
  std::array<char, 48> text_{};
};

// "what it captured as number 3".
class Captured {
 public:
  explicit Captured(std::uint32_t identity) {
    if (identity == kNoIdentity) return;
    std::snprintf(text_.data(), text_.size(), "what it captured as number %" PRIu32, identity);
  }
  const char* text() const { return text_.data(); }

 private:
  std::array<char, 48> text_{"what no graph holds"};
};

}  // namespace

Failure mismatch_of(NamedRank late_rank, const Signature& late, NamedRank first_rank,
                    const Signature& first) {
  if (is_cut_differently(late, first)) {
    return make_failure(ErrorCode::FailedPrecondition, Reason::Mismatch, late_rank.rank,
                        "cut differently: %s sent %" PRIu64 " at %" PRIu64 ", %s %" PRIu64
                        " at %" PRIu64 ", of %" PRIu64,
                        Named(late_rank).text(), late.send_count, late.first_element,
                        Named(first_rank).text(), first.send_count, first.first_element,
                        late.total_count);
  }
  Differences differ;
  differ.add_named("collective", late.collective, first.collective);
  const bool has_one_count =
      late.send_count == late.recv_count && first.send_count == first.recv_count;
  differ.add(has_one_count ? "count" : "send count", late.total_count, first.total_count);
  if (!has_one_count) differ.add("recv count", late.recv_count, first.recv_count);
  differ.add_named("dtype", late.dtype, first.dtype);
  differ.add_named("op", late.op, first.op);
  differ.add_named("codec", late.codec, first.codec);
  if (late.codec == first.codec)
    differ.add_named("codec by", late.codec_origin, first.codec_origin);
  differ.add_rank("root", late.root, first.root);
  return make_failure(ErrorCode::FailedPrecondition, Reason::Mismatch, late_rank.rank,
                      "%s and %s differ: %s", Named(late_rank).text(), Named(first_rank).text(),
                      differ.text());
}

Failure reordered(NamedRank late, std::uint32_t lates, NamedRank first, std::uint32_t firsts) {
  return make_failure(ErrorCode::FailedPrecondition, Reason::Reordered, late.rank,
                      "%s runs %s, %s %s", Named(late).text(), Captured(lates).text(),
                      Named(first).text(), Captured(firsts).text());
}

}  // namespace arcomm

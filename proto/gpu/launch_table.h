// Which way an operation between GPUs takes: rows of {which operations, path, algorithm, blocks},
// of which the first that fits counts. The daemon makes one when a communicator is formed
// (daemon/plan/launch_table_builder.h), hands the same to every rank, and keeps to it itself: it is
// frozen for the communicator's epoch. Nothing is decided here: these are the layout, the checks
// and the lookup. A value; immutable once shared. Sizes are bytes that one rank sends.
//
// On the host a table says which operations the ranks' calls run among themselves, and which codecs
// pay; the worker runs all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/coding.h"
#include "proto/gpu/device_mailbox.h"
#include "proto/gpu/in_stream_call.h"
#include "proto/operation_spec.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

// Of the encoding, of what the rows mean, of what is published of codecs (proto/coding.h), by which
// library and daemon judge error classes alike, of the memory of calls that meet
// (proto/host/in_call.h), and of what ranks can ask of a table (most_sms). A library that reads
// another one cannot be a rank.
inline constexpr std::uint32_t kLaunchTableVersion = 9;
inline constexpr std::size_t kMaxLaunchRows = 64;
inline constexpr std::size_t kMaxCodingRows = 64;
inline constexpr std::uint64_t kAnyBytes = ~std::uint64_t{0};

// Sets of types, operations, codecs and collectives, by bit_of().
inline constexpr std::uint16_t kAllDTypes = (1U << kDTypes) - 1;
inline constexpr std::uint8_t kAllOps = (1U << kReduceOps) - 1;
inline constexpr std::uint8_t kAllCodecs = (1U << kCodecs) - 1;
inline constexpr std::uint8_t kAllCollectives = (1U << kCollectives) - 1;

struct LaunchKey {
  std::uint64_t bytes = 0;
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  Codec codec = Codec::None;
  Collective collective = Collective::AllReduce;
};
inline LaunchKey launch_key_of(const OperationSpec& spec) {
  return {.bytes = spec.send_bytes(),
          .dtype = spec.dtype,
          .op = spec.op,
          .codec = spec.codec,
          .collective = spec.collective};
}

struct LaunchRow {
  std::uint64_t most_bytes = kAnyBytes;  // these and fewer
  std::uint16_t dtypes = kAllDTypes;
  std::uint8_t ops = kAllOps, codecs = kAllCodecs, collectives = kAllCollectives;
  LaunchPath path = LaunchPath::Launched;
  // Of in-stream rows. An operation has one block for each bytes_per_block that it begins, at least
  // one and at most most_blocks.
  InStreamAlgorithm algorithm = InStreamAlgorithm::OneShotLl16;
  std::uint32_t bytes_per_block = 0;
  std::uint32_t most_blocks = 0;
  // Of launched rows: the daemon's kernel, by a number of its own, which clients only pass over.
  // That kernel's shape follows from size, ranks and GPU alone.
  std::uint8_t launched = 0;

  bool covers(const LaunchKey& key) const;
  std::uint32_t blocks(std::uint64_t bytes) const;
  friend bool operator==(const LaunchRow&, const LaunchRow&) = default;
};

// From which size on a codec is faster than none, for operations that leave the choice to an error
// class; there is no row for one that never is. The fastest come first.
struct CodingRow {
  Codec codec = Codec::None;
  std::uint64_t least_bytes = 0;  // these and more
  std::uint16_t dtypes = kAllDTypes;
  std::uint8_t times = 1;  // that an element is quantized on its way: 1 or 2

  friend bool operator==(const CodingRow&, const CodingRow&) = default;
};

struct Launch {
  LaunchPath path = LaunchPath::Launched;
  InStreamShape in_stream;  // with blocks where that is the path

  // Else the rank's own stream runs it: no plan, and no registration of memory.
  bool needs_daemon() const { return path == LaunchPath::Resident || path == LaunchPath::Launched; }
};

class LaunchTable {
 public:
  LaunchTable() : rows_(1) {}  // the daemon launches everything
  // InvalidArgument, saying what is wrong, where the rows cannot be: too many, in-stream ones that
  // no kernel serves, or operations for which there is no row.
  static Result<LaunchTable> create(std::uint32_t ranks, std::vector<LaunchRow> rows,
                                    std::vector<CodingRow> coding = {});

  // The first codec that pays and honours it by its published bounds; else none. The key's own
  // codec is not looked at.
  Codec codec_for(const ErrorClass& wanted, const LaunchKey& key) const;
  Launch find(const LaunchKey& key) const;
  // LaunchRow::launched of the operation, also where another path takes it first.
  std::uint8_t find_launched(const LaunchKey& key) const;
  bool has_in_stream() const;
  // Whether the operation's codec is served: by another row than the last, which takes all that is
  // left, and with it what is to be refused.
  bool takes_codec(const LaunchKey& key) const;
  std::uint64_t most_in_call_bytes() const;  // that one rank sends; 0: no operation is in-call
  const std::vector<LaunchRow>& rows() const { return rows_; }
  const std::vector<CodingRow>& coding() const { return coding_; }
  std::uint32_t ranks() const { return ranks_; }

  // Between processes of one machine, in its byte order.
  std::string encode() const;
  // Checked as by create(). Reason::Version where the bytes are of another version.
  static Result<LaunchTable> decode(std::string_view bytes);

  friend bool operator==(const LaunchTable&, const LaunchTable&) = default;

 private:
  std::uint32_t ranks_ = 1;
  std::vector<LaunchRow> rows_;
  std::vector<CodingRow> coding_;
};

}  // namespace arcomm

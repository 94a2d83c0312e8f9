#include "proto/gpu/launch_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "proto/host/in_call.h"

namespace arcomm {
namespace {

struct WireHeader {
  std::uint32_t version;
  std::uint32_t ranks;
  std::uint32_t rows;
  std::uint32_t coding_rows;  // behind the others
};
struct WireRow {
  std::uint64_t most_bytes;
  std::uint32_t bytes_per_block;
  std::uint32_t most_blocks;
  std::uint16_t dtypes;
  std::uint8_t ops;
  std::uint8_t codecs;
  std::uint8_t path;
  std::uint8_t algorithm;  // of in-stream rows InStreamAlgorithm, else LaunchRow::launched
  std::uint8_t collectives;
  std::uint8_t reserved;
};
struct WireCodingRow {
  std::uint64_t least_bytes;
  std::uint16_t dtypes;
  std::uint8_t codec;
  std::uint8_t times;
  std::uint32_t reserved;
};
static_assert(sizeof(WireHeader) == 16 && sizeof(WireRow) == 24 && sizeof(WireCodingRow) == 16 &&
              std::is_trivially_copyable_v<WireRow>);

Error bad(const auto&... parts) {
  return error(ErrorCode::InvalidArgument, Reason::BadValue, "a launch table ", parts...);
}

// `set`: of a row. Numbers that this version has no name for have no kernel either.
template <typename Named>
Status check_served(unsigned set, unsigned served, std::string_view path) {
  const unsigned more = set & ~served;
  if (more == 0) return {};
  const auto number = static_cast<unsigned>(std::countr_zero(more));
  return bad("runs ", text_of(static_cast<Named>(number)), " (number ", number, ") ", path,
             ", for which there is no kernel");
}

Status check_in_stream(const LaunchRow& row, std::uint32_t ranks) {
  if (ranks < 2 || ranks > kMaxGpuRanks)
    return bad("has in-stream rows for ", ranks, " ranks: 2 to ", kMaxGpuRanks, " can be");
  if (static_cast<std::uint32_t>(row.algorithm) >= kInStreamAlgorithms)
    return bad("names in-stream algorithm ", static_cast<std::uint32_t>(row.algorithm));
  if (row.bytes_per_block == 0 || row.most_blocks == 0 || row.most_blocks > kMaxInStreamBlocks) {
    return bad("has a row of ", row.bytes_per_block, " bytes for each of ", row.most_blocks,
               " blocks");
  }
  ARC_RETURN_IF_ERROR(check_served<DType>(row.dtypes, kInStreamDTypes, "in-stream"));
  ARC_RETURN_IF_ERROR(
      check_served<Codec>(row.codecs, in_stream_codecs(row.algorithm), "in-stream"));
  if ((row.codecs & ~bit_of(Codec::None)) != 0) {
    ARC_RETURN_IF_ERROR(check_served<ReduceOp>(row.ops, kInStreamCodecOps, "with a codec"));
    if (row.algorithm != coded_algorithm(ranks))
      return bad("has codecs in ", name_of(row.algorithm), " between ", ranks, " ranks");
  }
  return check_served<Collective>(row.collectives, kInStreamCollectives, "in-stream");
}

Status check_resident(const LaunchRow& row) {
  ARC_RETURN_IF_ERROR(check_served<Codec>(row.codecs, kResidentCodecs, "resident"));
  return check_served<Collective>(row.collectives, kResidentCollectives, "resident");
}

Status check_in_call(const LaunchRow& row, std::uint32_t ranks) {
  if (ranks > kMaxInCallRanks || row.most_bytes > kMaxInCallBytes)
    return bad("lets calls of ", ranks, " ranks meet for up to ", row.most_bytes,
               " bytes: ", kMaxInCallRanks, " ranks and ", kMaxInCallBytes, " bytes can be");
  ARC_RETURN_IF_ERROR(check_served<Codec>(row.codecs, kInCallCodecs, "in-call"));
  return check_served<Collective>(row.collectives, kInCallCollectives, "in-call");
}

Status check_coding(const CodingRow& row) {
  const auto number = static_cast<unsigned>(row.codec);
  if (number == 0 || number >= kCodecs) return bad("says when codec number ", number, " pays");
  if (row.times < 1 || row.times > 2)
    return bad("has codec ", text_of(row.codec), " quantize ", unsigned{row.times}, " times");
  return {};
}

}  // namespace

bool LaunchRow::covers(const LaunchKey& key) const {
  return key.bytes <= most_bytes && has_bit(dtypes, static_cast<unsigned>(key.dtype)) &&
         has_bit(ops, static_cast<unsigned>(key.op)) &&
         has_bit(codecs, static_cast<unsigned>(key.codec)) &&
         has_bit(collectives, static_cast<unsigned>(key.collective));
}

std::uint32_t LaunchRow::blocks(std::uint64_t bytes) const {
  if (bytes_per_block == 0) return 0;
  const std::uint64_t begun = bytes / bytes_per_block + (bytes % bytes_per_block != 0 ? 1 : 0);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(begun, 1, most_blocks));
}

Result<LaunchTable> LaunchTable::create(std::uint32_t ranks, std::vector<LaunchRow> rows,
                                        std::vector<CodingRow> coding) {
  if (ranks == 0 || ranks > static_cast<std::uint32_t>(kMaxRanks))
    return bad("is for ", ranks, " ranks");
  if (rows.empty() || rows.size() > kMaxLaunchRows)
    return bad("has ", rows.size(), " rows: 1 to ", kMaxLaunchRows, " can be");
  for (const LaunchRow& row : rows) {
    switch (row.path) {
      case LaunchPath::InStream:
        ARC_RETURN_IF_ERROR(check_in_stream(row, ranks));
        break;
      case LaunchPath::Alone:
        if (ranks != 1) return bad("lets each of ", ranks, " ranks copy alone");
        ARC_RETURN_IF_ERROR(check_served<Codec>(row.codecs, bit_of(Codec::None), "alone"));
        break;
      case LaunchPath::Resident:
        ARC_RETURN_IF_ERROR(check_resident(row));
        break;
      case LaunchPath::InCall:
        ARC_RETURN_IF_ERROR(check_in_call(row, ranks));
        break;
      case LaunchPath::Launched:
        break;
      default:  // a number from outside
        return bad("names path ", static_cast<std::uint32_t>(row.path));
    }
  }
  const LaunchRow& last = rows.back();
  if (last.most_bytes != kAnyBytes || (last.dtypes & kAllDTypes) != kAllDTypes ||
      (last.ops & kAllOps) != kAllOps || (last.codecs & kAllCodecs) != kAllCodecs ||
      (last.collectives & kAllCollectives) != kAllCollectives ||
      last.path == LaunchPath::InStream || last.path == LaunchPath::InCall)
    return bad("ends with a row that does not take all that is left");
  if (coding.size() > kMaxCodingRows)
    return bad("has ", coding.size(), " rows of codecs: ", kMaxCodingRows, " can be");
  for (const CodingRow& row : coding) ARC_RETURN_IF_ERROR(check_coding(row));
  LaunchTable table;
  table.ranks_ = ranks;
  table.rows_ = std::move(rows);
  table.coding_ = std::move(coding);
  return table;
}

Codec LaunchTable::codec_for(const ErrorClass& wanted, const LaunchKey& key) const {
  for (const CodingRow& row : coding_) {
    if (key.bytes >= row.least_bytes && has_bit(row.dtypes, static_cast<unsigned>(key.dtype)) &&
        codec_serves(row.codec, key.op, key.dtype) && honours(row.codec, wanted, row.times))
      return row.codec;
  }
  return Codec::None;
}

Launch LaunchTable::find(const LaunchKey& key) const {
  for (const LaunchRow& row : rows_) {
    if (!row.covers(key)) continue;
    Launch launch{.path = row.path, .in_stream = {}};
    if (row.path == LaunchPath::InStream)
      launch.in_stream = {.algorithm = row.algorithm, .blocks = row.blocks(key.bytes)};
    return launch;
  }
  return {};
}

std::uint8_t LaunchTable::find_launched(const LaunchKey& key) const {
  for (const LaunchRow& row : rows_) {
    if (row.path == LaunchPath::Launched && row.covers(key)) return row.launched;
  }
  return 0;
}

bool LaunchTable::has_in_stream() const {
  return std::ranges::any_of(rows_,
                             [](const LaunchRow& row) { return row.path == LaunchPath::InStream; });
}

bool LaunchTable::takes_codec(const LaunchKey& key) const {
  return std::any_of(rows_.begin(), rows_.end() - 1,
                     [&key](const LaunchRow& row) { return row.covers(key); });
}

std::uint64_t LaunchTable::most_in_call_bytes() const {
  std::uint64_t most = 0;
  for (const LaunchRow& row : rows_) {
    if (row.path == LaunchPath::InCall) most = std::max(most, row.most_bytes);
  }
  return most;
}

std::string LaunchTable::encode() const {
  const WireHeader header{.version = kLaunchTableVersion,
                          .ranks = ranks_,
                          .rows = static_cast<std::uint32_t>(rows_.size()),
                          .coding_rows = static_cast<std::uint32_t>(coding_.size())};
  std::string bytes(
      sizeof(header) + rows_.size() * sizeof(WireRow) + coding_.size() * sizeof(WireCodingRow),
      '\0');
  std::memcpy(bytes.data(), &header, sizeof(header));
  char* to = bytes.data() + sizeof(header);
  for (const LaunchRow& row : rows_) {
    const WireRow wire{.most_bytes = row.most_bytes,
                       .bytes_per_block = row.bytes_per_block,
                       .most_blocks = row.most_blocks,
                       .dtypes = row.dtypes,
                       .ops = row.ops,
                       .codecs = row.codecs,
                       .path = static_cast<std::uint8_t>(row.path),
                       .algorithm = row.path == LaunchPath::InStream
                                        ? static_cast<std::uint8_t>(row.algorithm)
                                        : row.launched,
                       .collectives = row.collectives,
                       .reserved = 0};
    std::memcpy(to, &wire, sizeof(wire));
    to += sizeof(wire);
  }
  for (const CodingRow& row : coding_) {
    const WireCodingRow wire{.least_bytes = row.least_bytes,
                             .dtypes = row.dtypes,
                             .codec = static_cast<std::uint8_t>(row.codec),
                             .times = row.times,
                             .reserved = 0};
    std::memcpy(to, &wire, sizeof(wire));
    to += sizeof(wire);
  }
  return bytes;
}

Result<LaunchTable> LaunchTable::decode(std::string_view bytes) {
  WireHeader header{};
  if (bytes.size() >= sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.version != kLaunchTableVersion) {
    return error(ErrorCode::FailedPrecondition, Reason::Version, "a launch table of ", bytes.size(),
                 " bytes and version ", header.version, " came where version ", kLaunchTableVersion,
                 " is understood: use a client library and a daemon of one version");
  }
  const std::size_t room = bytes.size() - sizeof(header);
  if (header.rows > kMaxLaunchRows || header.coding_rows > kMaxCodingRows ||
      room != header.rows * sizeof(WireRow) + header.coding_rows * sizeof(WireCodingRow)) {
    return bad("of ", header.rows, " rows and ", header.coding_rows, " of codecs has ", room,
               " bytes for them");
  }
  std::vector<LaunchRow> rows;
  rows.reserve(header.rows);
  const char* from = bytes.data() + sizeof(header);
  for (std::uint32_t i = 0; i < header.rows; ++i, from += sizeof(WireRow)) {
    WireRow wire{};
    std::memcpy(&wire, from, sizeof(wire));
    const auto path = static_cast<LaunchPath>(wire.path);
    const bool is_in_stream = path == LaunchPath::InStream;
    rows.push_back({.most_bytes = wire.most_bytes,
                    .dtypes = wire.dtypes,
                    .ops = wire.ops,
                    .codecs = wire.codecs,
                    .collectives = wire.collectives,
                    .path = path,
                    .algorithm = is_in_stream ? static_cast<InStreamAlgorithm>(wire.algorithm)
                                              : InStreamAlgorithm{},
                    .bytes_per_block = wire.bytes_per_block,
                    .most_blocks = wire.most_blocks,
                    .launched = is_in_stream ? std::uint8_t{0} : wire.algorithm});
  }
  std::vector<CodingRow> coding;
  coding.reserve(header.coding_rows);
  for (std::uint32_t i = 0; i < header.coding_rows; ++i, from += sizeof(WireCodingRow)) {
    WireCodingRow wire{};
    std::memcpy(&wire, from, sizeof(wire));
    coding.push_back({.codec = static_cast<Codec>(wire.codec),
                      .least_bytes = wire.least_bytes,
                      .dtypes = wire.dtypes,
                      .times = wire.times});
  }
  return create(header.ranks, std::move(rows), std::move(coding));
}

}  // namespace arcomm

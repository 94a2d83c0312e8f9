#include "client/arctl/bench/accuracy/accuracy.h"

#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "client/arctl/bench/rank_team.h"
#include "client/arctl/verbs.h"
#include "client/arctl/view/table.h"
#include "proto/coding.h"

namespace arcomm::arctl {
namespace {

template <typename... Parts>
Error wrong_option(const Parts&... parts) {
  return error(ErrorCode::InvalidArgument, Reason::BadValue, parts...);
}

// Published of Gaussian data, and of a codec.
bool has_published_snr(const AccuracyRow& row) {
  return row.codec != Codec::None && row.data == AccuracyData::Gaussian;
}

Json number_or_null(bool is_there, double number) {
  return is_there ? Json(json_number(number)) : Json();
}

std::string number_or_dash(bool is_there, const char* format, double number) {
  std::array<char, 32> text{"-"};
  if (is_there) std::snprintf(text.data(), text.size(), format, number);
  return text.data();
}

// That all ranks have the same bits; what was found is one rank's then.
Status same_bits(const AccuracyRow& row, const Measured& measured) {
  if (!measured.results_differ) return {};
  return error(ErrorCode::DataLoss, Reason::Corrupt, "codec ", text_of(row.codec), " on ",
               text_of(row.data), " data: the ranks have different results");
}

Result<std::vector<AccuracyRow>> measure(const Invocation& invocation, const AccuracyPlan& plan,
                                         RankTeam& team) {
  std::vector<AccuracyData> data(std::begin(kMadeUpData), std::end(kMadeUpData));
  if (!plan.data.empty()) data.push_back(AccuracyData::Recorded);
  std::vector<AccuracyRow> rows;
  for (const AccuracyData one : data) {
    for (const Codec codec : plan.codecs) {
      BenchCase what;
      what.kind = CaseKind::Accuracy;
      what.data = one;
      what.count = one == AccuracyData::Recorded ? plan.recorded : kAccuracyElements;
      what.dtype = plan.dtype;
      what.op = plan.op;
      what.codec = codec;
      const Result<Measured> measured = team.run(what);
      if (!measured) return measured.error();
      rows.push_back({one, codec, measured->accuracy});
      ARC_RETURN_IF_ERROR(same_bits(rows.back(), *measured));
      if (!invocation.json) print(accuracy_line(rows.back(), invocation.colour));
    }
  }
  return rows;
}

}  // namespace

Result<AccuracyPlan> accuracy_plan_of(const AccuracyOptions& options) {
  AccuracyPlan plan;
  const auto dtype = parse_dtype(options.dtype);
  const auto op = parse_op(options.op);
  if (!dtype || !op || !codec_serves(Codec::Q8, *op, *dtype)) {
    return wrong_option("--accuracy of ", options.op, " of ", options.dtype, ": ", kServedByCodecs);
  }
  plan.dtype = *dtype;
  plan.op = *op;
  if (options.codec.empty()) {
    for (unsigned number = 0; number < kCodecs; ++number)
      plan.codecs.push_back(static_cast<Codec>(number));
  } else if (const auto codec = parse_codec(options.codec)) {
    plan.codecs.push_back(*codec);
  } else {
    return wrong_option("unknown codec: ", options.codec);
  }
  if (options.ranks < 2 || options.ranks > kMostAccuracyRanks) {
    return wrong_option("--accuracy is of 2 to ", kMostAccuracyRanks, " ranks, not of ",
                        options.ranks, ": each of them holds the values of all");
  }
  plan.ranks = options.ranks;
  plan.data = options.data;
  if (plan.data.empty()) return plan;
  const Result<RecordedData> recorded = RecordedData::read(plan.data, plan.ranks);
  if (!recorded) return recorded.error();
  plan.recorded = recorded->count();
  return plan;
}

// Columns of a fixed width, because rows are printed as they are measured.
std::string accuracy_heading(const AccuracyPlan& plan, bool colour) {
  std::string title = "# all_reduce, " + std::to_string(plan.ranks) + " ranks, " +
                      std::string(text_of(plan.op)) + " of " + std::string(text_of(plan.dtype)) +
                      ", " + std::to_string(kAccuracyElements) + " elements";
  if (!plan.data.empty())
    title += ", recorded " + std::to_string(plan.recorded) + " of " + plan.data;
  title += "; against the exact result\n";
  return title +
         painted(
             "data              codec          SNR  published  error/bound   error/largest  "
             "published       bias   #beyond",
             Colour::Bold, colour) +
         "\n" +
         painted(
             "                               (dB)       (dB)                                      "
             "                       ",
             Colour::Dim, colour) +
         "\n";
}

std::string accuracy_line(const AccuracyRow& row, bool colour) {
  const AccuracyFound& found = row.found;
  const bool is_coded = row.codec != Codec::None;
  const std::string snr = number_or_dash(row.data != AccuracyData::Adversarial && found.noise > 0,
                                         "%.1f", found.snr_db());
  const std::string published_snr =
      number_or_dash(has_published_snr(row), "%.1f", is_coded ? snr_db_of(row.codec, 1) : 0);
  const std::string published_error =
      number_or_dash(is_coded, "%.5f", is_coded ? relative_error_of(row.codec, 1) : 0);
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), "%-16s  %-11s %6s %10s %12.4f %15.3g %10s %10.1e ",
                text_of(row.data).data(), text_of(row.codec).data(), snr.c_str(),
                published_snr.c_str(), found.most_of_bound, found.most_of_largest,
                published_error.c_str(), found.bias());
  std::array<char, 32> beyond{};
  std::snprintf(beyond.data(), beyond.size(), "%9" PRIu64, found.beyond);
  return text.data() +
         painted(beyond.data(), found.beyond != 0 ? Colour::Red : Colour::Plain, colour) + "\n";
}

Json accuracy_json(const std::vector<AccuracyRow>& rows, const AccuracyPlan& plan) {
  Json all = Json::array();
  for (const AccuracyRow& row : rows) {
    const AccuracyFound& found = row.found;
    const bool is_coded = row.codec != Codec::None;
    all.push_back({{"data", text_of(row.data)},
                   {"codec", text_of(row.codec)},
                   {"elements", found.elements},
                   {"snr_db", number_or_null(found.noise > 0, found.snr_db())},
                   {"published_snr_db",
                    number_or_null(has_published_snr(row), is_coded ? snr_db_of(row.codec, 1) : 0)},
                   {"error_over_bound", json_number(found.most_of_bound)},
                   {"error_over_largest", json_number(found.most_of_largest)},
                   {"published_error_over_largest",
                    number_or_null(is_coded, is_coded ? relative_error_of(row.codec, 1) : 0)},
                   {"bias", json_number(found.bias())},
                   {"beyond", found.beyond}});
  }
  return {{"collective", "all_reduce"}, {"ranks", plan.ranks},    {"dtype", text_of(plan.dtype)},
          {"op", text_of(plan.op)},     {"data_file", plan.data}, {"accuracy", std::move(all)}};
}

Status accuracy_verdict(const std::vector<AccuracyRow>& rows) {
  std::uint64_t beyond = 0;
  for (const AccuracyRow& row : rows) beyond += row.found.beyond;
  if (beyond == 0) return {};
  return error(ErrorCode::DataLoss, Reason::Corrupt, beyond,
               " elements are beyond their bound: the #beyond column says where");
}

ExitCode bench_accuracy(const Invocation& invocation, const AccuracyPlan& plan) {
  TeamOptions options;
  options.ranks = plan.ranks;
  options.buffer_bytes = std::max(kAccuracyElements, plan.recorded) * size_of(plan.dtype);
  options.runtime_dir = invocation.runtime_dir;
  options.data_file = plan.data;
  options.timeout = invocation.timeout_or(30);
  Result<RankTeam> team = RankTeam::start(options);
  if (!team) return report(team.error());
  if (!invocation.json && print(accuracy_heading(plan, invocation.colour)) != ExitCode::Ok)
    return ExitCode::Failure;
  const Result<std::vector<AccuracyRow>> rows = measure(invocation, plan, *team);
  if (!rows) return report(rows.error());
  const Status finished = team->finish();
  if (invocation.json) print(json_line(accuracy_json(*rows, plan)));
  if (!finished) return report(finished.error());
  const Status verdict = accuracy_verdict(*rows);
  return verdict ? ExitCode::Ok : report(verdict.error());
}

}  // namespace arcomm::arctl

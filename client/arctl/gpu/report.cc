#include "client/arctl/gpu/report.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "client/arctl/command_line/units.h"
#include "client/arctl/view/json.h"
#include "client/arctl/view/table.h"
#include "proto/version.h"

namespace arcomm::arctl {
namespace {

struct GpuRates {
  double p50_us = 0, p99_us = 0, min_us = 0;
  Bandwidth width;
  std::optional<double> of_light_pct;
};

GpuRates rates_of(const GpuRun& run, const GpuFigure& figure) {
  GpuRates rates;
  rates.p50_us = figure.measured.percentile_us(0.5);
  rates.p99_us = figure.measured.percentile_us(0.99);
  rates.min_us = figure.measured.percentile_us(0);
  rates.width = bandwidth(figure.what.bytes(), rates.p50_us, run.plan.ranks);
  if (run.light_gb_s && *run.light_gb_s > 0)
    rates.of_light_pct = 100 * rates.width.bus_gb_s / *run.light_gb_s;
  return rates;
}

std::string arcommd_version() {
  return std::to_string(kVersionMajor) + "." + std::to_string(kVersionMinor) + "." +
         std::to_string(kVersionPatch);
}

const char* memory_name(RankMemory memory) {
  return memory == RankMemory::Cuda ? "cuda" : "shared";
}

const char* mode_name(const BenchCase& what) {
  return what.in_graph ? "graph" : "stream";
}

bool is_whole(const GpuFigure& figure) {
  return figure.measured.checked_bytes >= figure.what.bytes();
}

template <typename... Values>
std::string formatted(const char* form, Values... values) {
  std::array<char, 256> text;
  std::snprintf(text.data(), text.size(), form, values...);
  return text.data();
}

// No clock here tells more than nanoseconds. Absent: null.
Json thousandths(std::optional<double> number) {
  return number ? json_number(std::round(*number * 1e3) / 1e3) : Json(nullptr);
}

Json figure_json(const GpuRun& run, const GpuFigure& figure) {
  const GpuRates rates = rates_of(run, figure);
  return {{"p50_us", thousandths(rates.p50_us)},
          {"p99_us", thousandths(rates.p99_us)},
          {"min_us", thousandths(rates.min_us)},
          {"algbw_gb_s", thousandths(rates.width.algorithm_gb_s)},
          {"busbw_gb_s", thousandths(rates.width.bus_gb_s)},
          {"of_light_pct", thousandths(rates.of_light_pct)},
          {"batches", figure.what.rounds},
          {"operations", figure.what.iterations},
          {"checked", is_whole(figure) ? "all" : "sampled"},
          {"checked_bytes", figure.measured.checked_bytes},
          {"wrong", figure.measured.wrong}};
}

// One row for each size and place: its lines are one for each mode. Of a run that failed the last
// ones may be missing, and the last one's peers.
Json rows_json(const GpuRun& run) {
  Json rows = Json::array();
  const std::size_t modes = run.plan.in_graph.size();
  for (std::size_t first = 0; first < run.lines.size(); first += modes) {
    const std::size_t end = std::min(first + modes, run.lines.size());
    const BenchCase& what = run.lines[first].front().what;
    Json row = {{"bytes", what.bytes()}, {"count", what.count}, {"in_place", what.in_place}};
    for (std::size_t each = 0; each < run.lines[first].size(); ++each) {
      Json contender = Json::object();
      for (std::size_t at = first; at < end && each < run.lines[at].size(); ++at) {
        const GpuFigure& figure = run.lines[at][each];
        contender[mode_name(figure.what)] = figure_json(run, figure);
      }
      row[std::string(text_of(run.lines[first][each].what.contender))] = std::move(contender);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::string gpu_heading(const GpuRun& run, bool colour) {
  const BenchPlan& plan = run.plan;
  std::string text =
      "# all_reduce, " + std::to_string(plan.ranks) + (plan.ranks == 1 ? " GPU" : " GPUs");
  for (const GpuOpened& each : run.opened) {
    if (each.contender == Contender::Arcommd) text += " (" + printable(each.said) + ")";
  }
  text += ", " + timing_name(plan) + " timing, " + memory_name(plan.memory) + " memory; arcommd " +
          arcommd_version();
  std::string left_out;
  bool peers = false;
  for (const GpuOpened& each : run.opened) {
    if (each.contender == Contender::Arcommd) continue;
    const std::string name(text_of(each.contender));
    if (each.is_open) {
      peers = true;
      text += ", " + name + " " + printable(each.said);
    } else {
      left_out += "# without " + name + ": " + printable(each.said) + "\n";
    }
  }
  if (peers) {
    text += run.nvls == "0"
                ? "; NVLink multicast off"
                : "; NVLink multicast on (NCCL_NVLS_ENABLE=" + printable(run.nvls) + ")";
  }
  text += "\n# the speed of light, copies from each GPU to the next, all at once: ";
  text += run.light_gb_s ? fixed(*run.light_gb_s, 1) + " GB/s"
                         : "not known (" + printable(run.light_why) + ")";
  text += "\n# time: of the slowest rank, p50 and p99 over " +
          std::string(plan.timing == Timing::Each ? "calls" : "batches") +
          "; light: busbw as a part of it; peer/ours: the fastest peer's p50 over arcommd's\n" +
          left_out;
  std::string titles =
      "       size        count      type  redop place   mode    time us     p99 us    algbw    "
      "busbw light   #wrong checked";
  std::string units =
      "        (B)   (elements)                                                         (GB/s)   "
      "(GB/s)   (%)                ";
  for (const GpuOpened& each : run.opened) {
    if (each.contender == Contender::Arcommd || !each.is_open) continue;
    const std::string name = std::string(text_of(each.contender)) + " us";
    titles += " | " + formatted("%17s %10s", name.c_str(), "p99 us");
    units += " | " + std::string(28, ' ');
  }
  if (peers) titles += " | peer/ours";
  return text + painted(titles, Colour::Bold, colour) + "\n" + painted(units, Colour::Dim, colour) +
         "\n";
}

std::string gpu_line_text(const GpuRun& run, const GpuLine& line, bool colour) {
  if (line.empty()) return "";
  const GpuFigure& ours = line.front();
  const GpuRates rates = rates_of(run, ours);
  const std::string light =
      rates.of_light_pct ? formatted("%5.0f", *rates.of_light_pct) : std::string("    -");
  std::string text = formatted(
      "%11" PRIu64 " %12" PRIu64 " %9s %6s %5s %6s %10.2f %10.2f %8.2f %8.2f %s ",
      ours.what.bytes(), ours.what.count, text_of(ours.what.dtype).data(),
      text_of(ours.what.op).data(), ours.what.in_place ? "in" : "out", mode_name(ours.what),
      rates.p50_us, rates.p99_us, rates.width.algorithm_gb_s, rates.width.bus_gb_s, light.c_str());
  std::uint64_t wrong = 0;
  double fastest = 0;
  std::string peers;
  for (const GpuFigure& figure : line) {
    wrong += figure.measured.wrong;
    if (figure.what.contender == Contender::Arcommd) continue;
    const GpuRates theirs = rates_of(run, figure);
    peers += " | " + formatted("%17.2f %10.2f", theirs.p50_us, theirs.p99_us);
    if (fastest == 0 || theirs.p50_us < fastest) fastest = theirs.p50_us;
  }
  text += painted(formatted("%8" PRIu64, wrong), wrong != 0 ? Colour::Red : Colour::Plain, colour);
  text += formatted(" %7s", is_whole(ours) ? "all" : "sampled") + peers;
  if (fastest > 0 && rates.p50_us > 0) text += " | " + formatted("%9.2f", fastest / rates.p50_us);
  return text + "\n";
}

std::string gpu_json(const GpuRun& run) {
  const BenchPlan& plan = run.plan;
  Json contenders = Json::array();
  for (const GpuOpened& each : run.opened) {
    const char* about = !each.is_open                          ? "why"
                        : each.contender == Contender::Arcommd ? "gpu"
                                                               : "version";
    contenders.push_back(
        {{"name", text_of(each.contender)}, {"measured", each.is_open}, {about, each.said}});
  }
  return json_line({{"collective", "all_reduce"},
                    {"device", "gpu"},
                    {"ranks", plan.ranks},
                    {"dtype", text_of(plan.dtype)},
                    {"op", text_of(plan.op)},
                    {"timing", timing_name(plan)},
                    {"memory", memory_name(plan.memory)},
                    {"nccl_nvls_enable", run.nvls},
                    {"version", arcommd_version()},
                    {"gpus", plan.gpus},
                    {"light_gb_s", thousandths(run.light_gb_s)},
                    {"light_why", run.light_why},
                    {"contenders", std::move(contenders)},
                    {"rows", rows_json(run)},
                    {"error", run.failure}});
}

std::pair<std::uint64_t, std::string> wrong_in(const GpuRun& run) {
  std::uint64_t wrong = 0;
  std::string first;
  for (const GpuLine& line : run.lines) {
    for (const GpuFigure& figure : line) {
      if (wrong == 0 && figure.measured.wrong != 0) first = figure.measured.note;
      wrong += figure.measured.wrong;
    }
  }
  return {wrong, first};
}

}  // namespace arcomm::arctl

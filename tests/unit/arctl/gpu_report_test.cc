#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "client/arctl/gpu/report.h"

namespace arcomm::arctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

GpuFigure figure(Contender contender, bool in_graph, std::vector<double> samples) {
  GpuFigure made;
  made.what.contender = contender;
  made.what.in_graph = in_graph;
  made.what.count = 500'000;
  made.what.dtype = DType::Float16;
  made.what.rounds = static_cast<std::uint32_t>(samples.size());
  made.what.iterations = 20;
  made.measured.samples_us = std::move(samples);
  made.measured.checked_bytes = made.what.bytes();
  return made;
}

// 1 MB between 4 GPUs: arcommd in 10 us, NCCL in 20 us, copies at 300 GB/s.
GpuRun sample_run() {
  BenchOptions options;
  options.device = "gpu";
  options.dtype = "float16";
  options.ranks = 4;
  options.peers = {"nccl", "nccl-symmetric"};
  GpuRun run;
  run.plan = *plan_of(options);
  run.light_gb_s = 300;
  run.nvls = "0";
  run.opened = {{Contender::Arcommd, true, "NVIDIA H200, CUDA 13.0"},
                {Contender::Nccl, true, "2.27.3"},
                {Contender::NcclSymmetric, false, "NCCL 2.27.3 gave no symmetric window here"}};
  for (const bool in_graph : {false, true}) {
    run.lines.push_back({figure(Contender::Arcommd, in_graph, {10, 9, 12}),
                         figure(Contender::Nccl, in_graph, {20, 21, 19})});
  }
  return run;
}

// Where a line's columns end.
std::vector<std::size_t> bars(const std::string& line) {
  std::vector<std::size_t> places;
  for (std::size_t at = line.find('|'); at != std::string::npos; at = line.find('|', at + 1))
    places.push_back(at);
  return places;
}

std::string last_line_but(const std::string& text, int skipped) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    lines.push_back(text.substr(at, text.find('\n', at) - at));
  return lines[lines.size() - 1 - static_cast<std::size_t>(skipped)];
}

TEST(GpuReport, PrintsColumnsUnderTheirTitles) {
  const GpuRun run = sample_run();
  const std::string heading = gpu_heading(run, false),
                    line = gpu_line_text(run, run.lines[1], false);
  EXPECT_THAT(heading, HasSubstr("4 GPUs (NVIDIA H200, CUDA 13.0), cuda-events timing"));
  EXPECT_THAT(heading, HasSubstr("nccl 2.27.3"));
  EXPECT_THAT(heading, HasSubstr("all at once: 300.0 GB/s"));
  EXPECT_THAT(heading, HasSubstr("# without nccl-symmetric: NCCL 2.27.3 gave no"));
  const std::string titles = last_line_but(heading, 1);
  EXPECT_EQ(bars(titles), bars(line)) << titles << "\n" << line;
  EXPECT_EQ(bars(titles).size(), 2u);
  EXPECT_THAT(line, HasSubstr("float16    sum   out  graph"));
  // 1 MB / 10 us = 100 GB/s; times 2 * 3 / 4; half of the copies' 300.
  EXPECT_THAT(line, HasSubstr("  10.00      12.00   100.00   150.00    50        0     all"));
  EXPECT_THAT(line, HasSubstr("|      2.00"));
  const auto end_of = [](const std::string& text, const char* what) {
    return text.find(what) + std::string(what).size();
  };
  EXPECT_EQ(end_of(titles, "busbw"), end_of(line, "150.00"));
  EXPECT_EQ(end_of(titles, "light"), end_of(line, "150.00    50"));
  EXPECT_EQ(end_of(titles, "checked"), end_of(line, "    all"));
}

TEST(GpuReport, SaysWhyThereIsNoSpeedOfLight) {
  GpuRun run = sample_run();
  run.light_gb_s.reset();
  run.light_why = "a GPU does not reach its neighbour's memory";
  EXPECT_THAT(gpu_heading(run, false), HasSubstr("not known (a GPU does not reach"));
  EXPECT_THAT(gpu_line_text(run, run.lines[0], false), HasSubstr("   150.00     -        0"));
  const auto json = nlohmann::json::parse(gpu_json(run));
  EXPECT_TRUE(json["light_gb_s"].is_null());
  EXPECT_TRUE(json["rows"][0]["arcommd"]["graph"]["of_light_pct"].is_null());
}

TEST(GpuReport, HoldsEverythingAsJson) {
  const auto json = nlohmann::json::parse(gpu_json(sample_run()));
  EXPECT_EQ(json["ranks"], 4);
  EXPECT_EQ(json["gpus"], (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(json["light_gb_s"], 300);
  EXPECT_EQ(json["contenders"][0]["gpu"], "NVIDIA H200, CUDA 13.0");
  EXPECT_EQ(json["contenders"][1]["version"], "2.27.3");
  EXPECT_EQ(json["contenders"][2]["measured"], false);
  EXPECT_THAT(json["contenders"][2]["why"].get<std::string>(), HasSubstr("no symmetric window"));
  ASSERT_EQ(json["rows"].size(), 1u) << "both modes are of one size";
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["bytes"], 1'000'000);
  EXPECT_FALSE(row.contains("nccl-symmetric"));
  EXPECT_EQ(json["error"], "");
  for (const char* mode : {"stream", "graph"}) {
    const auto& ours = row["arcommd"][mode];
    EXPECT_EQ(ours["p50_us"], 10);
    EXPECT_EQ(ours["p99_us"], 12);
    EXPECT_EQ(ours["min_us"], 9);
    EXPECT_DOUBLE_EQ(ours["busbw_gb_s"].get<double>(), 150);
    EXPECT_DOUBLE_EQ(ours["of_light_pct"].get<double>(), 50);
    EXPECT_EQ(ours["checked"], "all");
    EXPECT_EQ(ours["batches"], 3);
    EXPECT_EQ(row["nccl"][mode]["p50_us"], 20);
  }
}

TEST(GpuReport, HoldsWhatWasMeasuredOfARunThatFailed) {
  GpuRun run = sample_run();
  run.lines.push_back(run.lines[0]);  // the graph's line of the second size did not come
  run.failure = "rank 1 died";
  auto json = nlohmann::json::parse(gpu_json(run));
  ASSERT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][1]["arcommd"]["stream"]["p50_us"], 10);
  EXPECT_FALSE(json["rows"][1]["arcommd"].contains("graph"));
  EXPECT_EQ(json["error"], "rank 1 died");
  run.lines.push_back({run.lines[1][0]});  // now nccl's half of it
  json = nlohmann::json::parse(gpu_json(run));
  EXPECT_TRUE(json["rows"][1]["arcommd"].contains("graph"));
  EXPECT_FALSE(json["rows"][1]["nccl"].contains("graph"));
}

TEST(GpuReport, SaysWhetherPeersHadNvlinkMulticast) {
  GpuRun run = sample_run();
  EXPECT_THAT(gpu_heading(run, false), HasSubstr("nccl 2.27.3; NVLink multicast off\n"));
  run.nvls = "2";
  EXPECT_THAT(gpu_heading(run, false), HasSubstr("; NVLink multicast on (NCCL_NVLS_ENABLE=2)\n"));
  EXPECT_EQ(nlohmann::json::parse(gpu_json(run))["nccl_nvls_enable"], "2");
  run.opened.resize(1);
  EXPECT_THAT(gpu_heading(run, false), Not(HasSubstr("multicast")));
}

TEST(GpuReport, CountsWhatIsWrongOfAllAndNamesTheFirst) {
  GpuRun run = sample_run();
  run.lines[0][1].measured.wrong = 3;
  run.lines[0][1].measured.note = "rank 1, 1000000 bytes of nccl on a stream";
  run.lines[1][0].measured.wrong = 4;
  run.lines[1][0].measured.note = "later";
  const auto [wrong, first] = wrong_in(run);
  EXPECT_EQ(wrong, 7u);
  EXPECT_EQ(first, "rank 1, 1000000 bytes of nccl on a stream");
  EXPECT_THAT(gpu_line_text(run, run.lines[0], false), HasSubstr("       3     all"));
  EXPECT_THAT(gpu_line_text(run, run.lines[0], true), HasSubstr("\x1b[31m"));
  EXPECT_EQ(wrong_in(sample_run()).first, 0u);
}

}  // namespace
}  // namespace arcomm::arctl

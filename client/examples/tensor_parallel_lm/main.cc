// The front end of a small inference server: trains the model, starts the ranks, sends them
// prompts, and compares what they answer with a run that needs neither them nor the library.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "client/examples/tensor_parallel_lm/options.h"
#include "client/examples/tensor_parallel_lm/serving/codecs.h"
#include "client/examples/tensor_parallel_lm/serving/recording.h"
#include "client/examples/tensor_parallel_lm/serving/team.h"
#include "client/examples/tensor_parallel_lm/training/corpus.h"

namespace lm {
namespace {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "tensor_parallel_lm.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      throw std::runtime_error("cannot make the folder " + pattern);
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Corpus read_documents(const Options& options) {
  const std::vector<std::string> files =
      options.files.empty() ? documents_in(ARCOMM_EXAMPLE_DOCUMENTS) : options.files;
  if (files.empty()) {
    throw std::runtime_error("there are no documents under " ARCOMM_EXAMPLE_DOCUMENTS
                             ": name text files to train on");
  }
  Corpus corpus = read_corpus(files);
  const Config& config = options.train.config;
  if (corpus.text.size() < config.context + 2) {
    throw std::runtime_error("the text is " + std::to_string(corpus.text.size()) +
                             " bytes long; training needs " + std::to_string(config.context + 2) +
                             " or more");
  }
  return corpus;
}

Weights train_model(const Options& options, const Corpus& corpus) {
  const Config& config = options.train.config;
  std::printf(
      "training on %zu files, %zu KB: %zu layers, %zu wide, %zu heads, %zu thousand parameters\n",
      corpus.files, corpus.text.size() / 1000, config.layers, config.width, config.heads,
      parameter_count(config) / 1000);
  std::size_t steps = 0;
  Weights weights = train(corpus.text, options.train, [&](const TrainProgress& progress) {
    steps = progress.step;
    std::printf("  step %4zu of %zu   loss %.3f nats per byte   %4.1f s\n", progress.step,
                options.train.steps, static_cast<double>(progress.loss), progress.seconds);
    std::fflush(stdout);
  });
  if (steps < options.train.steps) {
    std::printf("  time is up: --train-seconds %g ended the training early\n",
                options.train.max_seconds);
  }
  return weights;
}

// A byte model may end in the middle of a character: what is not plain text is shown as a question
// mark.
void print_quoted(const std::string& text) {
  for (const char c : text) {
    if (c == '\n') {
      std::fputs("\n      | ", stdout);
    } else {
      std::putchar(c >= ' ' && c <= '~' ? c : '?');
    }
  }
}

void print_texts(const std::vector<std::string>& prompts, const std::vector<std::string>& texts) {
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    std::printf("      | %s", is_terminal ? "\033[1m" : "");
    print_quoted(prompts[i]);
    std::fputs(is_terminal ? "\033[0m" : "", stdout);
    print_quoted(texts[i]);
    std::putchar('\n');
  }
}

// Windows of the text, spread over it: what a loss is measured on.
Request loss_request(const Corpus& corpus, const Config& config) {
  Request request;
  const std::size_t length = config.context + 1;
  const std::size_t windows = std::min<std::size_t>(kMostPrompts, corpus.text.size() / length);
  for (std::size_t i = 0; i < windows; ++i) {
    const auto from =
        corpus.text.begin() + static_cast<std::ptrdiff_t>(i * (corpus.text.size() / windows));
    request.prompts.emplace_back(from, from + static_cast<std::ptrdiff_t>(length));
  }
  return request;
}

// Of the ranks, which all have the same; and its change from that of the one-process run.
void print_loss(const std::vector<Reply>& replies, std::string_view codec, double reference) {
  const double loss = replies.front().generation.loss;
  std::printf("loss with codec %-10s  %.6f nats per byte, %+.6f from %.6f without one\n",
              codec.data(), loss, loss - reference, reference);
}

// One rank's share of the figures, and whether everybody computed the same.
struct Comparison {
  bool is_same_text = true;    // of every rank and the one-process run
  bool is_same_logits = true;  // bit for bit
  bool do_ranks_agree = true;  // to the bit
  double seconds = 0;
  double one_process_seconds = 0;
  std::size_t bytes = 0;
  AllReduceCost all_reduce;  // of rank 0
};

void compare(const Request& request, const std::vector<Reply>& replies, const Generation& reference,
             Comparison& comparison) {
  for (const Reply& reply : replies) {
    comparison.do_ranks_agree &=
        reply.generation.logits_digest == replies.front().generation.logits_digest;
    comparison.is_same_text &= reply.generation.texts == reference.texts;
    comparison.is_same_logits &= reply.generation.logits_digest == reference.logits_digest;
  }
  comparison.seconds += replies.front().generation.seconds;
  comparison.one_process_seconds += reference.seconds;
  comparison.all_reduce.calls += replies.front().all_reduce.calls;
  comparison.all_reduce.seconds += replies.front().all_reduce.seconds;
  comparison.bytes += request.prompts.size() * request.bytes;
}

void report(const Options& options, const Comparison& c) {
  const auto per_second = [&](double seconds) { return static_cast<double>(c.bytes) / seconds; };
  std::printf(
      "\ntokens per second: %.0f with %d rank processes, %.0f in one process (%zu prompts at a "
      "time)\n",
      per_second(c.seconds), options.ranks, per_second(c.one_process_seconds),
      options.prompts.size());
  std::printf(
      "time in AllReduce: %.0f%% (%llu calls, %.1f us each, waiting for the slowest rank "
      "included)\n",
      100 * c.all_reduce.seconds / c.seconds, static_cast<unsigned long long>(c.all_reduce.calls),
      1e6 * c.all_reduce.seconds / static_cast<double>(c.all_reduce.calls));
  if (options.codec != arcCodecNone) {
    std::printf("tokens equal those of the one-process run, which has no codec: %s\n",
                c.is_same_text ? "yes" : "no");
    std::printf("all ranks have the same logits, bit for bit: %s\n",
                c.do_ranks_agree ? "yes" : "NO");
    return;
  }
  std::printf("tokens equal those of the one-process run: %s; logits equal, bit for bit: %s\n",
              c.is_same_text ? "yes" : "NO", c.is_same_logits ? "yes" : "NO");
}

void finish_recording(const Options& options) {
  std::vector<std::string> parts;
  for (int rank = 0; rank < options.ranks; ++rank)
    parts.push_back(record_path_of(options.record_path, rank));
  const std::size_t values = join_recordings(parts, options.record_path);
  std::printf("recorded %zu values of each of %d ranks in %s\n", values, options.ranks,
              options.record_path.c_str());
}

bool run(const Options& options) {
  const Corpus corpus = read_documents(options);
  const Weights weights = train_model(options, corpus);
  const ScratchFolder scratch;
  const std::string weights_path = scratch.path() + "/weights";
  save_weights(weights, weights_path);
  std::optional<Team> team(std::in_place, options.ranks, weights_path, options.codec,
                           options.record_path);
  OneProcess one_process(weights, options.ranks);
  Transformer reference(weights.config, weights.parameters(), one_process);

  Request request{.prompts = options.prompts, .bytes = 32, .seed = options.train.seed};
  team->ask(request);  // warms up: first touches of memory are no part of the figures
  request.bytes = options.bytes;
  Comparison comparison;
  for (const float temperature : {0.0F, options.temperature}) {
    request.temperature = temperature;
    const std::vector<Reply> replies = team->ask(request);
    compare(request, replies, generate(reference, request), comparison);
    std::printf(temperature > 0 ? "\nsampled at temperature %.2f:\n" : "\ngreedy:\n",
                static_cast<double>(temperature));
    print_texts(request.prompts, replies.front().generation.texts);
  }
  report(options, comparison);
  bool is_right = options.codec == arcCodecNone
                      ? comparison.is_same_text && comparison.is_same_logits
                      : comparison.do_ranks_agree;
  if (!options.record_path.empty()) finish_recording(options);
  if (options.codec == arcCodecNone && !options.with_all_codecs) return is_right;
  const Request judged = loss_request(corpus, weights.config);
  const double loss = generate(reference, judged).loss;
  if (!options.with_all_codecs) {
    print_loss(team->ask(judged), name_of(options.codec), loss);
    return is_right;
  }
  team.reset();
  for (const NamedCodec& one : kCodecs) {
    Team with_codec(options.ranks, weights_path, one.codec);
    const std::vector<Reply> replies = with_codec.ask(judged);
    print_loss(replies, one.name, loss);
    for (const Reply& reply : replies)
      is_right &= reply.generation.loss == replies.front().generation.loss;
  }
  return is_right;
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) {
  if (const int status = lm::run_as_rank(argc, argv); status >= 0) return status;
  lm::Options options;
  try {
    options = lm::parse_options(argc, argv);
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "tensor_parallel_lm: %s\n", wrong.what());
    return 2;
  }
  if (options.wants_help) {
    std::fputs(lm::usage(), stdout);
    return 0;
  }
  try {
    return lm::run(options) ? 0 : 1;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "tensor_parallel_lm: %s\n", failure.what());
    return 1;
  }
}

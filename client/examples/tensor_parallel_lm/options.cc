#include "client/examples/tensor_parallel_lm/options.h"

#include <charconv>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "client/examples/tensor_parallel_lm/serving/codecs.h"
#include "client/examples/tensor_parallel_lm/serving/generate.h"

namespace lm {
namespace {

template <typename Number>
Number number(std::string_view flag, std::string_view text, Number least, Number most) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw std::invalid_argument(std::string(flag) + " takes a number from " +
                                std::to_string(least) + " to " + std::to_string(most) + ", not \"" +
                                std::string(text) + "\"");
  }
  return value;
}

// A model and a training that take at most three seconds: what a test needs.
void make_quick(Options& options) {
  options.train.config = {.layers = 2, .width = 64, .heads = 4, .hidden = 256, .context = 64};
  options.train.steps = 400;
  options.train.windows_per_step = 2;
  options.train.max_seconds = 3;
  options.bytes = 64;
}

void take_codec(std::string_view name, Options& options) {
  options.with_all_codecs = name == "all";
  if (options.with_all_codecs) return;
  const std::optional<arcCodec_t> codec = codec_named(name);
  if (!codec) {
    std::string names;
    for (const NamedCodec& one : kCodecs) names += std::string(one.name) + ", ";
    throw std::invalid_argument("--codec takes " + names + "or all, not \"" + std::string(name) +
                                "\"");
  }
  options.codec = *codec;
}

}  // namespace

const char* usage() {
  return "usage: tensor_parallel_lm [options] [text file...]\n"
         "\n"
         "Trains a byte-level language model on the files (the repository's own documents if none "
         "is named),\n"
         "then serves prompts with its layers cut over several processes that sum through "
         "arcommd.\n"
         "\n"
         "  --ranks N            rank processes, 1 to the model's 8 heads (default 2)\n"
         "  --prompt TEXT        may be given several times; all are decoded together\n"
         "  --tokens N           bytes to generate for each prompt (default 160)\n"
         "  --temperature T      of the sampled text, beside the greedy one (default 0.7)\n"
         "  --train-steps N      (default 450)\n"
         "  --train-seconds S    ends the training early on a slow machine (default 12)\n"
         "  --seed N             of weights, training windows and sampling (default 1)\n"
         "  --codec NAME         the ranks' sums go through this codec: none (the default), fp8, "
         "q8, "
         "q6, q4,\n"
         "                       q8_rotated, q6_rotated, q4_rotated; the change of the loss is "
         "printed. all: without\n"
         "                       one, and then the loss with each\n"
         "  --record FILE        writes what the ranks sum, as float32, rank by rank: data for "
         "arctl bench --accuracy\n"
         "  --quick              a smaller model, trained for three seconds at most\n"
         "\n"
         "arcommd must be running; ARCOMM_RUNTIME_DIR says where if not in /run/arcommd.\n";
}

Options parse_options(int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  Options options;
  for (const std::string_view argument : arguments) options.is_quick |= argument == "--quick";
  if (options.is_quick) make_quick(options);  // first, so that other flags may still change it
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view flag = arguments[i];
    const auto value = [&]() -> std::string_view {
      if (i + 1 >= arguments.size())
        throw std::invalid_argument(std::string(flag) + " needs a value");
      return arguments[++i];
    };
    if (flag == "--quick") continue;
    if (flag == "--help" || flag == "-h") {
      options.wants_help = true;
    } else if (flag == "--ranks") {
      options.ranks = number(flag, value(), 1, static_cast<int>(options.train.config.heads));
    } else if (flag == "--prompt") {
      options.prompts.emplace_back(value());
      if (options.prompts.back().empty()) throw std::invalid_argument("--prompt must not be empty");
    } else if (flag == "--tokens") {
      options.bytes = number<std::size_t>(flag, value(), 1, 100000);
    } else if (flag == "--temperature") {
      options.temperature = number(flag, value(), 0.01F, 10.0F);
    } else if (flag == "--train-steps") {
      options.train.steps = number<std::size_t>(flag, value(), 1, 1000000);
    } else if (flag == "--train-seconds") {
      options.train.max_seconds = number(flag, value(), 0.1, 86400.0);
    } else if (flag == "--seed") {
      options.train.seed = number<std::uint64_t>(flag, value(), 0, UINT64_MAX);
    } else if (flag == "--codec") {
      take_codec(value(), options);
    } else if (flag == "--record") {
      options.record_path = value();
      if (options.record_path.empty()) throw std::invalid_argument("--record needs a file's name");
    } else if (flag.starts_with("-")) {
      throw std::invalid_argument("there is no option " + std::string(flag) +
                                  "; --help lists them");
    } else {
      options.files.emplace_back(flag);
    }
  }
  if (options.prompts.size() > kMostPrompts) {
    throw std::invalid_argument("at most " + std::to_string(kMostPrompts) +
                                " prompts are decoded together");
  }
  if (options.prompts.empty()) options.prompts = {"The daemon ", "A client that "};
  return options;
}

}  // namespace lm

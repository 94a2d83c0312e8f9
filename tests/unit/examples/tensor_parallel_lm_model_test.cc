// The language model's arithmetic in one process: products, gradients, training, files, command
// line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "client/examples/tensor_parallel_lm/model/matrix.h"
#include "client/examples/tensor_parallel_lm/options.h"
#include "client/examples/tensor_parallel_lm/serving/channel.h"
#include "client/examples/tensor_parallel_lm/training/gradient.h"
#include "client/examples/tensor_parallel_lm/training/train.h"
#include "tests/unit/examples/dense_weights.h"

namespace lm {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const Config kTiny{.layers = 2, .width = 16, .heads = 2, .hidden = 24, .context = 9};

std::vector<float> random_floats(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::uint8_t> some_text(std::size_t bytes) {
  std::vector<std::uint8_t> text;
  for (std::size_t i = 0; i < bytes; ++i)
    text.push_back(static_cast<std::uint8_t>((i * i * 37 + 11) % 251));
  return text;
}

TEST(Matrix, EqualsTheTripleLoopAtEveryBlockEdge) {
  for (const std::size_t rows : {1U, 7U, 8U, 17U}) {
    for (const std::size_t columns : {1U, 16U, 31U, 33U, 64U}) {
      const std::size_t inner = 5;
      const auto a = random_floats(rows * inner, 1);
      const auto b = random_floats(inner * columns, 2);
      auto c = random_floats(rows * columns, 3);
      auto expected = c;
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t k = 0; k < inner; ++k) {
          for (std::size_t j = 0; j < columns; ++j)
            expected[r * columns + j] += a[r * inner + k] * b[k * columns + j];
        }
      }
      multiply({.rows = rows,
                .inner = inner,
                .columns = columns,
                .a = a.data(),
                .a_row_stride = inner,
                .b = b.data(),
                .b_stride = columns,
                .c = c.data(),
                .c_stride = columns,
                .accumulate = true});
      for (std::size_t i = 0; i < c.size(); ++i)
        ASSERT_NEAR(c[i], expected[i], 1e-5) << rows << "x" << columns;
    }
  }
}

TEST(Matrix, ARowDoesNotDependOnTheRowsComputedWithIt) {
  const std::size_t rows = 11;
  const std::size_t inner = 40;
  const std::size_t columns = 50;
  const auto a = random_floats(rows * inner, 1);
  const auto b = random_floats(inner * columns, 2);
  std::vector<float> together(rows * columns);
  std::vector<float> alone(columns);
  const Product product{.rows = rows,
                        .inner = inner,
                        .columns = columns,
                        .a = a.data(),
                        .a_row_stride = inner,
                        .b = b.data(),
                        .b_stride = columns,
                        .c = together.data(),
                        .c_stride = columns};
  multiply(product);
  for (std::size_t r = 0; r < rows; ++r) {
    Product one = product;
    one.rows = 1;
    one.a += r * inner;
    one.c = alone.data();
    multiply(one);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(),
                           together.begin() + static_cast<std::ptrdiff_t>(r * columns)));
  }
}

TEST(Gradient, AgreesWithFiniteDifferencesInEveryMatrix) {
  Weights weights = dense_weights(kTiny);
  const auto text = some_text(kTiny.context + 1);
  std::vector<float> sum(weights.values.size());
  std::vector<float> ignored(weights.values.size());
  Gradient gradient(kTiny);
  gradient.add(weights.parameters(), text, parameters_in(kTiny, std::span(sum)));
  const Parameters unused = parameters_in(kTiny, std::span(ignored));
  const auto loss = [&] { return gradient.add(weights.parameters(), text, unused); };

  std::mt19937_64 random(3);
  const std::size_t matrices = 2 + 4 * kTiny.layers;
  std::vector<std::size_t> touched(text.begin(), text.end());
  for (std::size_t trial = 0; trial < 40 * matrices; ++trial) {
    std::size_t at = random() % weights.values.size();
    if (trial % 4 == 0)
      at = touched[trial / 4 % touched.size()] * kTiny.width + trial % kTiny.width;  // embeddings
    const float kept = weights.values[at];
    const float nudge = 3e-3F;
    weights.values[at] = kept + nudge;
    const float above = loss();
    weights.values[at] = kept - nudge;
    const float below = loss();
    weights.values[at] = kept;
    const float slope = (above - below) / (2 * nudge);
    ASSERT_NEAR(sum[at], slope, 2e-3F + 0.03F * std::abs(slope)) << "parameter " << at;
  }
}

TEST(Train, LearnsASentenceByHeart) {
  std::string sentence;
  while (sentence.size() < 600) sentence += "the quick brown fox jumps over the lazy dog. ";
  const std::vector<std::uint8_t> text(sentence.begin(), sentence.end());
  float last = 100;
  const TrainOptions options{
      .config = {.layers = 1, .width = 32, .heads = 2, .hidden = 64, .context = 32},
      .steps = 400,
      .windows_per_step = 2,
      .max_seconds = 60,
      .seed = 5};
  train(text, options, [&](const TrainProgress& progress) { last = progress.loss; });
  EXPECT_LT(last, 0.5F);
}

TEST(Train, TheSameSeedGivesTheSameWeights) {
  const auto text = some_text(500);
  const TrainOptions options{
      .config = kTiny, .steps = 5, .windows_per_step = 2, .max_seconds = 60, .seed = 9};
  const auto quiet = [](const TrainProgress&) {};
  EXPECT_EQ(train(text, options, quiet).values, train(text, options, quiet).values);
}

TEST(Train, EndsWhenItsTimeIsOver) {
  const auto text = some_text(500);
  std::size_t steps = 0;
  train(text, {.config = kTiny, .steps = 100000000, .max_seconds = 0.2},
        [&](const TrainProgress& progress) { steps = progress.step; });
  EXPECT_GT(steps, 0U);
  EXPECT_LT(steps, 100000000U);
}

TEST(Weights, AFileThatEndsEarlyIsNamed) {
  const std::string path = ::testing::TempDir() + "tensor_parallel_lm_short_weights";
  Weights weights = dense_weights(kTiny);
  save_weights(weights, path);
  EXPECT_EQ(load_weights(path).values, weights.values);
  weights.values.pop_back();
  save_weights(weights, path);
  EXPECT_THAT([&] { load_weights(path); },
              ThrowsMessage<std::runtime_error>(HasSubstr(path + " ends before")));
  std::remove(path.c_str());
}

Options parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "tensor_parallel_lm");
  std::vector<char*> argv;
  argv.reserve(arguments.size());
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return parse_options(static_cast<int>(argv.size()), argv.data());
}

TEST(CommandLine, ReadsFlagsAndFiles) {
  const Options options =
      parse({"--ranks", "4", "--prompt", "a", "--prompt", "b", "--tokens", "9", "x.txt"});
  EXPECT_EQ(options.ranks, 4);
  EXPECT_THAT(options.prompts, ::testing::ElementsAre("a", "b"));
  EXPECT_EQ(options.bytes, 9U);
  EXPECT_THAT(options.files, ::testing::ElementsAre("x.txt"));
}

TEST(CommandLine, SaysWhatIsWrong) {
  EXPECT_THAT(
      [] {
        parse({"--ranks", "9"});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("from 1 to 8")));
  EXPECT_THAT(
      [] {
        parse({"--ranks", "2x"});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("\"2x\"")));
  EXPECT_THAT([] { parse({"--ranks"}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("needs a value")));
  EXPECT_THAT(
      [] {
        parse({"--rank", "2"});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("no option --rank;")));
}

TEST(Channel, CarriesWholeMessagesAndSeesTheEnd) {
  const auto [ours, theirs] = Channel::open_pair();
  Channel near(ours, "far");
  {
    Channel far(theirs, "near");
    near.send("one");
    near.send(std::string(100000, 'x'));
    EXPECT_EQ(far.expect(std::chrono::seconds(5)), "one");
    EXPECT_EQ(far.expect(std::chrono::seconds(5)).size(), 100000U);
    EXPECT_THAT([&] { far.expect(std::chrono::milliseconds(10)); },
                ThrowsMessage<std::runtime_error>(HasSubstr("did not answer in time")));
  }
  EXPECT_EQ(near.receive(std::chrono::seconds(5)), std::nullopt);
}

}  // namespace
}  // namespace lm

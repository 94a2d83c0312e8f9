// The model cut over ranks: as threads that meet at a barrier in place of arcAllReduce, against the
// one-process run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "client/examples/tensor_parallel_lm/serving/generate.h"
#include "client/examples/tensor_parallel_lm/training/gradient.h"
#include "tests/unit/examples/dense_weights.h"

namespace lm {
namespace {

const Config kSmall{.layers = 2, .width = 32, .heads = 4, .hidden = 60, .context = 16};

// What arcAllReduce promises, between threads: everybody's partial, added in rank order.
class Meeting {
 public:
  explicit Meeting(int ranks) : partials_(static_cast<std::size_t>(ranks)), everybody_(ranks) {}
  void all_reduce(int rank, std::vector<float>& values) {
    partials_[static_cast<std::size_t>(rank)] = values;
    everybody_.arrive_and_wait();
    values = partials_[0];
    for (std::size_t r = 1; r < partials_.size(); ++r) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += partials_[r][i];
    }
    everybody_.arrive_and_wait();
  }

 private:
  std::vector<std::vector<float>> partials_;
  std::barrier<> everybody_;
};

class OneRank : public LayerSums {
 public:
  OneRank(const Weights& weights, int rank, int ranks, Meeting& meeting)
      : shard_(weights.config, weights.parameters(), rank, ranks), rank_(rank), meeting_(meeting) {}
  void begin(std::size_t sequences) override { shard_.begin(sequences); }
  std::span<const float> attention(std::size_t layer, std::span<const Row> rows,
                                   std::span<const float> norm) override {
    values_.resize(norm.size());
    shard_.attention(layer, rows, norm, values_);
    meeting_.all_reduce(rank_, values_);
    return values_;
  }
  std::span<const float> mlp(std::size_t layer, std::span<const float> norm) override {
    values_.resize(norm.size());
    shard_.mlp(layer, norm, values_);
    meeting_.all_reduce(rank_, values_);
    return values_;
  }

 private:
  Shard shard_;
  int rank_;
  Meeting& meeting_;
  std::vector<float> values_;
};

class Sharding : public ::testing::TestWithParam<int> {};

TEST_P(Sharding, AllRanksGenerateWhatTheOneProcessRunDoes) {
  const int ranks = GetParam();
  const Weights weights = dense_weights(kSmall);
  const Request request{.prompts = {"short", std::string(100, 'l') + "ong", "x"},
                        .bytes = 40,
                        .temperature = 0.8F,
                        .seed = 11};
  OneProcess one_process(weights, ranks);
  Transformer reference(weights.config, weights.parameters(), one_process);
  const Generation expected = generate(reference, request);

  Meeting meeting(ranks);
  std::vector<Generation> generations(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    threads.reserve(generations.size());
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        OneRank layers(weights, rank, ranks, meeting);
        Transformer transformer(weights.config, weights.parameters(), layers);
        generations[static_cast<std::size_t>(rank)] = generate(transformer, request);
      });
    }
  }
  for (const Generation& generation : generations) {
    EXPECT_EQ(generation.texts, expected.texts);
    EXPECT_EQ(generation.logits_digest, expected.logits_digest);
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, Sharding, ::testing::Values(1, 2, 3, 4));

TEST(Sharding, RefusesMoreRanksThanHeads) {
  const Weights weights = dense_weights(kSmall);
  EXPECT_THROW(Shard(weights.config, weights.parameters(), 4, 5), std::invalid_argument);
}

TEST(Transformer, GivesTheProbabilitiesThatTrainingSaw) {
  const Weights weights = dense_weights(kSmall);
  std::vector<std::uint8_t> text;
  for (std::size_t i = 0; i < kSmall.context; ++i)
    text.push_back(static_cast<std::uint8_t>(i * 31 % 127 + 1));
  std::vector<Row> rows;
  for (std::size_t p = 0; p + 1 < text.size(); ++p) {
    Row row{.sequence = 0, .position = p};
    for (std::size_t back = 0; back < kHistory && back <= p; ++back)
      row.bytes[back] = text[p - back];
    rows.push_back(row);
  }
  OneProcess layers(weights, 3);
  Transformer transformer(weights.config, weights.parameters(), layers);
  transformer.begin(1);
  const auto logits = transformer.logits(rows);
  std::vector<float> served(logits.begin(), logits.end());

  Gradient gradient(kSmall);
  std::vector<float> ignored(weights.values.size());
  gradient.add(weights.parameters(), text, parameters_in(kSmall, std::span(ignored)));
  const auto trained = gradient.probabilities();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    softmax(std::span(served).subspan(r * kVocabulary, kVocabulary));
    for (std::size_t b = 0; b < kVocabulary; ++b) {
      ASSERT_NEAR(served[r * kVocabulary + b], trained[r * kVocabulary + b], 1e-4F)
          << "row " << r << " byte " << b;
    }
  }
}

TEST(Generate, BatchedPromptsGetWhatTheyGetAlone) {
  const Weights weights = dense_weights(kSmall);
  OneProcess layers(weights, 2);
  Transformer transformer(weights.config, weights.parameters(), layers);
  const Generation together =
      generate(transformer, {.prompts = {"first", "the second"}, .bytes = 30});
  const Generation first = generate(transformer, {.prompts = {"first"}, .bytes = 30});
  const Generation second = generate(transformer, {.prompts = {"the second"}, .bytes = 30});
  EXPECT_EQ(together.texts, (std::vector<std::string>{first.texts[0], second.texts[0]}));
}

}  // namespace
}  // namespace lm

#include "client/examples/tensor_parallel_lm/serving/generate.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <random>

namespace lm {
namespace {

// FNV-1a over the bits of the logits, four bytes at a time.
void digest(std::span<const float> logits, std::uint64_t& state) {
  for (const float logit : logits) {
    state = (state ^ std::bit_cast<std::uint32_t>(logit)) * 0x100000001b3ULL;
  }
}

Row row_at(std::size_t sequence, const std::string& text, std::size_t position) {
  Row row{.sequence = sequence, .position = position};
  for (std::size_t back = 0; back < kHistory && back <= position; ++back) {
    row.bytes[back] = static_cast<std::uint8_t>(text[position - back]);
  }
  return row;
}

char choose(std::span<const float> logits, float temperature, std::mt19937_64& random) {
  if (temperature <= 0) {
    return static_cast<char>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  std::vector<float> chances(logits.begin(), logits.end());
  for (float& chance : chances) chance /= temperature;
  softmax(chances);
  // Not std::discrete_distribution, whose use of the generator is the standard library's own
  // affair.
  float point = static_cast<float>(random() >> 40) * 0x1p-24F;
  for (std::size_t byte = 0; byte < chances.size(); ++byte) {
    point -= chances[byte];
    if (point < 0) return static_cast<char>(byte);
  }
  return static_cast<char>(std::max_element(chances.begin(), chances.end()) - chances.begin());
}

// Of the bytes that follow the rows, where the prompt has them; in nats, together.
double loss_of(std::span<const float> logits, const std::vector<Row>& rows,
               const std::string& prompt) {
  double loss = 0;
  for (std::size_t r = 0; r < rows.size() && rows[r].position + 1 < prompt.size(); ++r) {
    const std::span<const float> scores = logits.subspan(r * kVocabulary, kVocabulary);
    std::vector<float> chances(scores.begin(), scores.end());
    const auto next = static_cast<std::uint8_t>(prompt[rows[r].position + 1]);
    loss += static_cast<double>(softmax(chances) - scores[next]);
  }
  return loss;
}

}  // namespace

Generation generate(Transformer& transformer, const Request& request) {
  const auto started = std::chrono::steady_clock::now();
  Generation generation;
  generation.logits_digest = 0xcbf29ce484222325ULL;
  std::vector<std::string> texts = request.prompts;
  std::vector<std::mt19937_64> random;
  for (std::size_t i = 0; i < texts.size(); ++i) random.emplace_back(request.seed + i);
  const auto extend = [&](std::size_t sequence, std::span<const float> logits) {
    texts[sequence].push_back(choose(logits, request.temperature, random[sequence]));
  };

  transformer.begin(texts.size());
  std::vector<Row> rows;
  for (std::size_t i = 0; i < texts.size();
       ++i) {  // prefill: many positions of one prompt at a time
    const std::size_t length = texts[i].size();
    for (std::size_t at = 0; at < length; at += kMostRows) {
      rows.clear();
      for (std::size_t p = at; p < std::min(length, at + kMostRows); ++p)
        rows.push_back(row_at(i, texts[i], p));
      const std::span<const float> logits = transformer.logits(rows);
      digest(logits, generation.logits_digest);
      if (request.bytes == 0) generation.loss += loss_of(logits, rows, texts[i]);
      if (at + kMostRows >= length && request.bytes > 0) extend(i, logits.last(kVocabulary));
    }
  }
  for (std::uint64_t step = 1; step < request.bytes;
       ++step) {  // decode: one position of all prompts at a time
    rows.clear();
    for (std::size_t i = 0; i < texts.size(); ++i)
      rows.push_back(row_at(i, texts[i], texts[i].size() - 1));
    const std::span<const float> logits = transformer.logits(rows);
    digest(logits, generation.logits_digest);
    for (std::size_t i = 0; i < texts.size(); ++i)
      extend(i, logits.subspan(i * kVocabulary, kVocabulary));
  }
  std::size_t judged = 0;
  for (const std::string& prompt : request.prompts) judged += prompt.size() - 1;
  if (judged > 0) generation.loss /= static_cast<double>(judged);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    generation.texts.push_back(texts[i].substr(request.prompts[i].size()));
  }
  generation.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return generation;
}

}  // namespace lm

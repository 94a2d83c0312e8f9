#include "client/examples/tensor_parallel_lm/serving/serve.h"

#include <stdexcept>

#include "client/examples/tensor_parallel_lm/serving/all_reduced.h"

namespace lm {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

arcUniqueId receive_unique_id(Channel& front_end) {
  const std::string bytes = front_end.expect(seconds(60));
  arcUniqueId id;
  if (bytes.size() != sizeof id.internal)
    throw std::runtime_error("the front end sent no unique id");
  bytes.copy(id.internal, sizeof id.internal);
  return id;
}

}  // namespace

void serve(const RankOptions& options, Channel& front_end) {
  const arc::Session attached;
  const Weights weights = load_weights(options.weights_path);
  Shard shard(weights.config, weights.parameters(), options.rank, options.ranks);
  AllReduced layers(shard, weights.config, receive_unique_id(front_end), options);
  Transformer transformer(weights.config, weights.parameters(), layers);
  front_end.send("ready");
  while (const auto message = front_end.receive(hours(24))) {
    const Generation generation = generate(transformer, decode_request(*message));
    layers.flush_record();
    front_end.send(encode(Reply{generation, layers.cost()}));
  }
}

std::string encode(const Request& request) {
  MessageWriter writer;
  writer.number(request.bytes).number(request.temperature).number(request.seed);
  writer.number<std::uint64_t>(request.prompts.size());
  for (const std::string& prompt : request.prompts) writer.text(prompt);
  return writer.bytes();
}

std::string encode(const Reply& reply) {
  MessageWriter writer;
  writer.number(reply.generation.logits_digest).number(reply.generation.seconds);
  writer.number(reply.generation.loss);
  writer.number(reply.all_reduce.calls).number(reply.all_reduce.seconds);
  writer.number<std::uint64_t>(reply.generation.texts.size());
  for (const std::string& text : reply.generation.texts) writer.text(text);
  return writer.bytes();
}

Request decode_request(const std::string& message) {
  MessageReader reader(message);
  Request request;
  request.bytes = reader.number<std::uint64_t>();
  request.temperature = reader.number<float>();
  request.seed = reader.number<std::uint64_t>();
  for (auto left = reader.number<std::uint64_t>(); left > 0; --left)
    request.prompts.push_back(reader.text());
  return request;
}

Reply decode_reply(const std::string& message) {
  MessageReader reader(message);
  Reply reply;
  reply.generation.logits_digest = reader.number<std::uint64_t>();
  reply.generation.seconds = reader.number<double>();
  reply.generation.loss = reader.number<double>();
  reply.all_reduce.calls = reader.number<std::uint64_t>();
  reply.all_reduce.seconds = reader.number<double>();
  for (auto left = reader.number<std::uint64_t>(); left > 0; --left)
    reply.generation.texts.push_back(reader.text());
  return reply;
}

}  // namespace lm

// The verbs of arcomm_test_client, listed at the top of test_client.cc; each file beside it holds
// some. Thread: one at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/client/test_client_operation.h"

namespace arcomm::support {

class Client {
 public:
  Outcome act(const Words& words);

 private:
  bool parse_operation(const Words& words, std::size_t at, Operation* operation);
  Outcome init(const Words& words);
  Outcome finalize();
  Outcome make_id();
  Outcome join(const Words& words);
  Outcome all_reduce(const Words& words);
  Outcome loop(const Words& words);
  Outcome submit(const Words& words);
  Outcome wait(const Words& words);
  Outcome together(const Words& words);
  Outcome plan(const Words& words);
  Outcome on_communicator(const Words& words);
  Outcome memory(const Words& words);
  Outcome flood(const Words& words);
  Outcome drain();
  Outcome storm(const Words& words);
  Outcome burn();
  Outcome steady(const Words& words);
  Outcome attaches(const Words& words);
  Outcome busy(const Words& words);
  Outcome cycles(const Words& words);
  Outcome hoard(const Words& words);
  Outcome in_child(const Words& words);

  std::map<std::string, Communicator> comms_;
  std::map<std::string, Operation> operations_;
  std::map<std::string, std::unique_ptr<Memory>> memories_;
  std::vector<Operation> flooded_;
  std::vector<std::unique_ptr<Memory>> hoarded_;
};

}  // namespace arcomm::support

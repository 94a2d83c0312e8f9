// What LeakSanitizer is not to blame tests for. c-ares, by which gRPC resolves names, keeps a copy
// of the name when a channel goes while it is being resolved (Debian 12: 1.18.1).
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions();

const char* __lsan_default_suppressions() {
  return "leak:libcares.so\n";
}

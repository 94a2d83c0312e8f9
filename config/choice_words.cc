#include "config/choice_words.h"

#include "config/settings.h"

namespace arcomm {

std::string_view text_of(LogLevel level) {
  return kLogLevels.at(static_cast<std::size_t>(level));
}
std::string_view text_of(LogFormat format) {
  return kLogFormats.at(static_cast<std::size_t>(format));
}
std::string_view text_of(BackendChoice backend) {
  return kBackends.at(static_cast<std::size_t>(backend));
}
std::string_view text_of(MpsChoice mps) {
  return kMpsChoices.at(static_cast<std::size_t>(mps));
}
std::string_view text_of(NetOrder order) {
  return kNetOrders.at(static_cast<std::size_t>(order));
}
std::string_view text_of(NetPartials partials) {
  return kNetPartials.at(static_cast<std::size_t>(partials));
}
std::string_view text_of(NetAlgorithm algorithm) {
  return kNetAlgorithms.at(static_cast<std::size_t>(algorithm));
}

}  // namespace arcomm

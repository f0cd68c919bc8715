#include "multimodal/mel_filters.h"

#include <algorithm>

namespace mlcc {

namespace {

constexpr double kHighest = 8000;

}  // namespace

double MelFilter::sum(const double* spectrum) const {
  double total = 0;
  const double* at = spectrum + first;
  for (double weight : weights) total += weight * *at++;
  return total;
}

std::vector<MelFilter> mel_filters(const std::vector<double>& corners, int frequencies, bool unit_area) {
  std::vector<MelFilter> filters;
  for (size_t b = 0; b + 2 < corners.size(); ++b) {
    double low = corners[b], center = corners[b + 1], high = corners[b + 2];
    MelFilter filter{0, {}};
    for (int f = 0; f < frequencies; ++f) {
      double at = kHighest * f / (frequencies - 1);
      double weight = std::min((at - low) / (center - low), (high - at) / (high - center));
      if (weight <= 0) continue;
      if (filter.weights.empty()) filter.first = f;
      filter.weights.push_back(unit_area ? weight * 2 / (high - low) : weight);
    }
    filters.push_back(std::move(filter));
  }
  return filters;
}

}  // namespace mlcc

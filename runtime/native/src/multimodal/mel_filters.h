// Triangular filters over the frequencies of a spectrogram, as transformers' mel_filter_bank makes them.
#ifndef MLCC_MULTIMODAL_MEL_FILTERS_H_
#define MLCC_MULTIMODAL_MEL_FILTERS_H_

#include <vector>

namespace mlcc {

// Weights of neighbouring frequencies, the first of them `first`.
struct MelFilter {
  int first;
  std::vector<double> weights;

  // The weighted sum of a spectrum.
  double sum(const double* spectrum) const;
};

// Filter i rises from corner i to 1 at corner i + 1 and falls to corner i + 2; or, with `unit_area`, to where its area
// is 1. corners: in hertz; frequencies: of the spectrum, the last one is 8 kHz.
std::vector<MelFilter> mel_filters(const std::vector<double>& corners, int frequencies, bool unit_area);

}  // namespace mlcc

#endif  // MLCC_MULTIMODAL_MEL_FILTERS_H_

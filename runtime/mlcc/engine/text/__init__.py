"""From tokens to text: detokenization, stop strings, log-probabilities."""

"""Sound: files to samples, samples to log-mel frames, and transcripts of windows."""

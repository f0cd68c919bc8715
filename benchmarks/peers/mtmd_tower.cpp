// Encodes one image by llama.cpp's mtmd for each line of standard input, and prints the seconds.
//
//     mtmd_tower TEXT.gguf MMPROJ.gguf THREADS FLASH SIDE
//
// TEXT.gguf is only read for its sizes. FLASH: 0 or 1, flash attention. SIDE: pixels of the image,
// which is random. Built by install.py.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "llama.h"
#include "mtmd.h"

namespace {

int Fail(const char* what) {
  std::fprintf(stderr, "mtmd_tower: %s\n", what);
  return 1;
}

mtmd_context* Open(const llama_model* text, char** words) {
  mtmd_context_params params = mtmd_context_params_default();
  params.use_gpu = false;
  params.print_timings = false;
  params.n_threads = std::atoi(words[3]);
  params.flash_attn_type = std::atoi(words[4]) != 0 ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                                                    : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  return mtmd_init_from_file(words[2], text, params);
}

// The image's first slice.
const mtmd_input_chunk* Slice(const mtmd_context* tower, int side, mtmd_input_chunks* chunks) {
  std::vector<unsigned char> pixels(3 * side * side);
  for (unsigned char& value : pixels) value = static_cast<unsigned char>(std::rand());
  mtmd_bitmap* image = mtmd_bitmap_init(side, side, pixels.data());
  const std::string marker = mtmd_default_marker();
  const mtmd_input_text prompt{marker.c_str(), marker.size(), false, true};
  const mtmd_bitmap* images[] = {image};
  const bool done = mtmd_tokenize(tower, chunks, &prompt, images, 1) == 0;
  mtmd_bitmap_free(image);
  for (size_t i = 0; done && i < mtmd_input_chunks_size(chunks); ++i) {
    const mtmd_input_chunk* chunk = mtmd_input_chunks_get(chunks, i);
    if (mtmd_input_chunk_get_type(chunk) == MTMD_INPUT_CHUNK_TYPE_IMAGE) return chunk;
  }
  return nullptr;
}

}  // namespace

int main(int count, char** words) {
  if (count != 6) return Fail("type mtmd_tower TEXT.gguf MMPROJ.gguf THREADS FLASH SIDE");
  llama_backend_init();
  llama_model* text = llama_model_load_from_file(words[1], llama_model_default_params());
  mtmd_context* tower = text == nullptr ? nullptr : Open(text, words);
  if (tower == nullptr) return Fail("a file does not load");
  mtmd_input_chunks* chunks = mtmd_input_chunks_init();
  const mtmd_input_chunk* slice = Slice(tower, std::atoi(words[5]), chunks);
  if (slice == nullptr) return Fail("the image does not become a slice");
  std::printf("%zu\n", mtmd_input_chunk_get_n_tokens(slice));
  std::fflush(stdout);
  while (std::getchar() != EOF) {
    const auto began = std::chrono::steady_clock::now();
    if (mtmd_encode_chunk(tower, slice) != 0) return Fail("encoding fails");
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - began;
    std::printf("%.6f\n", taken.count());
    std::fflush(stdout);
  }
  return 0;
}

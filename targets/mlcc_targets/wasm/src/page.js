// Functions that a library imports and npm's @mlc-ai/web-runtime provides, named for emcc, which
// would refuse them as undefined. Their bodies are never used: no JavaScript of emcc's is kept.

mergeInto(LibraryManager.library, {
  TVMFFIWasmSafeCall: () => {},
  TVMFFIWasmFunctionDeleter: () => {},
});

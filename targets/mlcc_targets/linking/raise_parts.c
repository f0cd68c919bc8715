/* The one function of TVM's runtime that generated code calls by its name, here within the library, by
   way of one that the runtime writes into each library when it loads it. So a library names no runtime:
   any that loads it will do, also where the loader binds all names at once (bionic). */

typedef void (*Raise)(const char* kind, const char* message);

#ifdef _WIN32
__declspec(dllexport)
#else
__attribute__((visibility("default")))
#endif
Raise __TVMFFIErrorSetRaisedFromCStr;

__attribute__((visibility("hidden"))) void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts,
                                                                             int count) {
  char message[2048]; /* what is longer is cut */
  unsigned size = 0;
  for (int i = 0; i < count; ++i) {
    for (const char* c = parts[i]; c && *c && size + 1 < sizeof message; ++c) message[size++] = *c;
  }
  message[size] = 0;
  __TVMFFIErrorSetRaisedFromCStr(kind, message);
}

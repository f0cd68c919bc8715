// TVM's web/emcc names the header by this path; other sources of it, by the one below.

#include "../../support/bytes_io.h"

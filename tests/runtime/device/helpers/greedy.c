// Greedy tokens of a compiled model over the C API alone, and what went wrong: arguments are a library,
// a file of weights, and a number of tokens. RECORDS names a file that Python wrote for the model.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor.h"
#include RECORDS

static int fail(mlcc_executor_status status) {
  printf("status %d: %s\n", (int)status, mlcc_executor_error());
  return 0;
}

int main(int argc, char** argv) {
  (void)argc;
  mlcc_executor_options options = made(argv[1], argv[2]);
  mlcc_executor* executor;
  mlcc_executor_status status = mlcc_executor_open(&options, &executor);
  if (status != MLCC_OK) return fail(status);
  int32_t* words;
  if ((status = mlcc_executor_step(executor, &words)) != MLCC_OK) return fail(status);
  for (int i = 0; i < atoi(argv[3]); ++i) {
    int64_t ticket;
    int32_t token, rows, top;
    float logprob;
    fill(words, i);
    if ((status = mlcc_executor_submit(executor, 0, &ticket)) != MLCC_OK) return fail(status);
    status = mlcc_executor_collect(executor, ticket, &token, &logprob, &rows, NULL, NULL, &top);
    if (status != MLCC_OK) return fail(status);
    printf("%" PRId32 " ", token);
  }
  printf("\n");
  mlcc_executor_close(executor);
  return 0;
}

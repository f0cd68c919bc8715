/* chat MODEL [MODULES]: a conversation with a compiled model, a line at a time.
 * MODULES: where Python finds `tokenizers`, if not in its standard library: a site-packages folder.
 * README.md beside this file says how to build it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mlcc.h"

static char talk[1 << 20]; /* the messages so far, as JSON without the brackets */

static int fail(const char* what, char* error) {
  fprintf(stderr, "%s: %s\n", what, error != NULL ? error : "closed");
  mlcc_free(error);
  return 1;
}

/* Append a line of text, as what stands between the quotes of a JSON string. */
static void say(const char* line) {
  size_t end = strlen(talk);
  for (; *line != '\0' && end < sizeof talk - 4096; ++line) {
    if (*line == '"' || *line == '\\') talk[end++] = '\\';
    if ((unsigned char)*line >= ' ') talk[end++] = *line;
  }
  talk[end] = '\0';
}

/* An event of the stream, data: {... "delta":{"content":"TEXT"} ...}: print TEXT and keep it. */
static void hear(const char* event) {
  const char* text = strstr(event, "\"content\":\"");
  if (text == NULL) return;
  size_t end = strlen(talk);
  for (text += 11; *text != '"' && end < sizeof talk - 4096; ++text) {
    talk[end++] = *text;
    if (*text == '\\') talk[end++] = *++text; /* escaped for JSON: kept as it is */
    putchar(text[-1] != '\\' ? *text : *text == 'n' ? '\n' : *text);
  }
  talk[end] = '\0';
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc < 2) return fputs("usage: chat MODEL [MODULES]\n", stderr), 2;
  mlcc_python python = {.size = sizeof python, .abi = MLCC_ABI_VERSION};
  python.path = argc > 2 ? argv[2] : NULL;
  char *error = NULL, line[4096], options[4096];
  if (mlcc_start(&python, &error) != MLCC_OK) return fail("Python", error);
  mlcc_engine engine;
  snprintf(options, sizeof options, "{\"model\": \"%s\"}", argv[1]);
  if (mlcc_create(options, NULL, &engine, &error) != MLCC_OK) return fail(argv[1], error);
  while (fputs("you> ", stdout), fflush(stdout), fgets(line, sizeof line, stdin) != NULL) {
    static char body[sizeof talk + 64];
    strcat(talk, *talk != '\0' ? ", " : "");
    strcat(talk, "{\"role\": \"user\", \"content\": \"");
    say(line);
    snprintf(body, sizeof body, "{\"stream\": true, \"messages\": [%s\"}]}", talk);
    strcat(talk, "\"}, {\"role\": \"assistant\", \"content\": \"");
    mlcc_call call;
    const char* path = "/v1/chat/completions";
    if (mlcc_request(engine, "POST", path, NULL, body, strlen(body), &call, &error) != MLCC_OK) {
      return fail("request", error);
    }
    const mlcc_batch* batch;
    for (int end = 0; !end && mlcc_poll(engine, -1, &batch) == MLCC_OK; mlcc_batch_free(batch)) {
      for (size_t i = 0; i < batch->count; ++i) {
        const mlcc_event* event = &batch->events[i];
        if (event->kind == MLCC_EVENT_BODY) hear(event->data);
        if (event->kind == MLCC_EVENT_FAILED) fprintf(stderr, "%s\n", event->data);
        end |= event->kind == MLCC_EVENT_END;
      }
    }
    strcat(talk, "\"}");
    putchar('\n');
  }
  mlcc_close(engine);
  return 0;
}

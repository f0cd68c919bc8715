package dev.mlcc

import dev.mlcc.calls.CHAT_ENDPOINT
import dev.mlcc.calls.Calls
import kotlinx.coroutines.CoroutineScope

/** `engine.chat`, as OpenAI's clients have it. */
public class Chat internal constructor(calls: Calls, scope: CoroutineScope) {
    /** Chat completions. */
    public val completions: Completions<ChatCompletionRequest, ChatCompletion, ChatCompletionChunk> =
        Completions(calls, scope, CHAT_ENDPOINT)
}

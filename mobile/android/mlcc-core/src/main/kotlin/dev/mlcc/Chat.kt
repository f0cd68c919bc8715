package dev.mlcc

import dev.mlcc.calls.CHAT_SHAPES
import dev.mlcc.calls.Calls
import kotlinx.coroutines.CoroutineScope

/** `engine.chat`, as OpenAI's clients have it. */
public class Chat internal constructor(calls: Calls, scope: CoroutineScope) {
    /** Answers to conversations. */
    public val completions: Completions<ChatCompletionRequest, ChatCompletion, ChatCompletionChunk> =
        Completions(calls, scope, CHAT_SHAPES)
}

package dev.mlcc

import dev.mlcc.calls.Calls
import dev.mlcc.calls.bytes
import dev.mlcc.calls.chunks
import dev.mlcc.calls.whole
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.future.future
import java.util.concurrent.CompletableFuture
import java.util.function.Consumer

/** `engine.chat`, as OpenAI's clients have it. */
public class Chat internal constructor(calls: Calls, scope: CoroutineScope) {
    /** Answers to conversations. */
    public val completions: ChatCompletions = ChatCompletions(calls, scope)
}

/** Answers to conversations. Any thread may ask; several are answered at once. */
public class ChatCompletions internal constructor(
    private val calls: Calls,
    private val scope: CoroutineScope,
) {
    /**
     * The whole answer. Cancelling the coroutine cancels the work. Whatever [request] says of `stream`
     * does not count.
     *
     * @throws MlccException [ApiException] if the request is refused.
     */
    public suspend fun create(request: ChatCompletionRequest): ChatCompletion {
        val asked = request.copy(stream = null, streamOptions = null)
        val body = bytes(ChatCompletionRequest.serializer(), asked)
        return calls.whole("POST", PATH, body, ChatCompletion.serializer())
    }

    /**
     * The answer as it is made. Each collector asks anew; one that stops collecting cancels the work.
     * The flow throws as [create] does, on the way too.
     */
    public fun stream(request: ChatCompletionRequest): Flow<ChatCompletionChunk> {
        val body = bytes(ChatCompletionRequest.serializer(), request.copy(stream = true))
        return calls.chunks(PATH, body, ChatCompletionChunk.serializer())
    }

    /** [create] for Java. Cancelling the future cancels the work. */
    public fun createAsync(request: ChatCompletionRequest): CompletableFuture<ChatCompletion> =
        scope.future { create(request) }

    /**
     * [stream] for Java: [each] hears the chunks, one at a time, in threads of mlcc's. The future ends
     * with the answer; cancelling it, or throwing from [each], cancels the work.
     */
    public fun streamAsync(
        request: ChatCompletionRequest,
        each: Consumer<ChatCompletionChunk>,
    ): CompletableFuture<Void?> = scope.future {
        stream(request).collect { each.accept(it) }
        null
    }

    private companion object {
        const val PATH = "/v1/chat/completions"
    }
}

/** What the answer says. */
public val ChatCompletion.text: String get() = choices.first().message.content

/** What the chunk adds to the answer; "" for the first and the last ones. */
public val ChatCompletionChunk.text: String get() = choices.firstOrNull()?.delta?.content.orEmpty()

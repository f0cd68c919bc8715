package dev.mlcc

import dev.mlcc.calls.Calls
import dev.mlcc.calls.Endpoint
import dev.mlcc.calls.bytes
import dev.mlcc.calls.streamChunks
import dev.mlcc.calls.callJson
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.future.future
import java.util.concurrent.CompletableFuture
import java.util.function.Consumer

/**
 * Chat completions ([Engine.chat]) or text completions ([Engine.completions]). Thread-safe; several
 * requests are answered at once.
 */
public class Completions<Request, Answer, Chunk> internal constructor(
    private val calls: Calls,
    private val scope: CoroutineScope,
    private val endpoint: Endpoint<Request, Answer, Chunk>,
) {
    /**
     * The whole answer. Cancelling the coroutine cancels the request. `stream` of [request] is ignored.
     *
     * @throws MlccException [ApiException] if the request is refused.
     */
    public suspend fun create(request: Request): Answer {
        val body = bytes(endpoint.request, endpoint.withStream(request, false))
        return calls.callJson("POST", endpoint.path, body, endpoint.answer)
    }

    /**
     * The answer as a flow of chunks; answers to several prompts are interleaved. Each collector sends
     * its own request; to stop collecting cancels it. The flow throws what [create] throws.
     */
    public fun stream(request: Request): Flow<Chunk> {
        val body = bytes(endpoint.request, endpoint.withStream(request, true))
        return calls.streamChunks(endpoint.path, body, endpoint.chunk)
    }

    /** [create] for Java. Cancelling the future cancels the work. */
    public fun createAsync(request: Request): CompletableFuture<Answer> =
        scope.future { create(request) }

    /**
     * [stream] for Java: [each] receives the chunks, one at a time, on threads of mlcc's. The future
     * completes with the answer; cancelling it, or throwing from [each], cancels the request.
     */
    public fun streamAsync(request: Request, each: Consumer<Chunk>): CompletableFuture<Void?> =
        scope.future {
            stream(request).collect { each.accept(it) }
            null
        }
}

/** The text of the answer; "" if it only calls tools. */
public val ChatCompletion.text: String get() = choices.first().message.content.orEmpty()

/** The text of the chunk; "" in the first and the last chunk. */
public val ChatCompletionChunk.text: String get() = choices.firstOrNull()?.delta?.content.orEmpty()

/** The text of the chunk. */
public val CompletionChunk.text: String get() = choices.firstOrNull()?.text.orEmpty()

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

/** Texts continued. Any thread may ask; several are answered at once. */
public class Completions internal constructor(
    private val calls: Calls,
    private val scope: CoroutineScope,
) {
    /**
     * The whole answer, one choice per prompt. Cancelling the coroutine cancels the work. Whatever
     * [request] says of `stream` does not count.
     *
     * @throws MlccException [ApiException] if the request is refused.
     */
    public suspend fun create(request: CompletionRequest): Completion {
        val asked = request.copy(stream = null, streamOptions = null)
        val body = bytes(CompletionRequest.serializer(), asked)
        return calls.whole("POST", PATH, body, Completion.serializer())
    }

    /**
     * The answer as it is made; those to several prompts are mixed. Each collector asks anew; one that
     * stops collecting cancels the work. The flow throws as [create] does, on the way too.
     */
    public fun stream(request: CompletionRequest): Flow<CompletionChunk> {
        val body = bytes(CompletionRequest.serializer(), request.copy(stream = true))
        return calls.chunks(PATH, body, CompletionChunk.serializer())
    }

    /** [create] for Java. Cancelling the future cancels the work. */
    public fun createAsync(request: CompletionRequest): CompletableFuture<Completion> =
        scope.future { create(request) }

    /**
     * [stream] for Java: [each] hears the chunks, one at a time, in threads of mlcc's. The future ends
     * with the answer; cancelling it, or throwing from [each], cancels the work.
     */
    public fun streamAsync(
        request: CompletionRequest,
        each: Consumer<CompletionChunk>,
    ): CompletableFuture<Void?> = scope.future {
        stream(request).collect { each.accept(it) }
        null
    }

    private companion object {
        const val PATH = "/v1/completions"
    }
}

/** What the chunk adds to the answer to its prompt. */
public val CompletionChunk.text: String get() = choices.firstOrNull()?.text.orEmpty()

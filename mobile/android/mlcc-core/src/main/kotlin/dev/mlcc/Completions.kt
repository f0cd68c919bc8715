package dev.mlcc

import dev.mlcc.calls.Calls
import dev.mlcc.calls.Shapes
import dev.mlcc.calls.bytes
import dev.mlcc.calls.chunks
import dev.mlcc.calls.whole
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.future.future
import java.util.concurrent.CompletableFuture
import java.util.function.Consumer

/**
 * Answers to conversations ([Engine.chat]), or texts continued ([Engine.completions]). Any thread may
 * ask; several requests are answered at once.
 */
public class Completions<Request, Answer, Chunk> internal constructor(
    private val calls: Calls,
    private val scope: CoroutineScope,
    private val shapes: Shapes<Request, Answer, Chunk>,
) {
    /**
     * The whole answer. Cancelling the coroutine cancels the work. Whatever [request] says of `stream`
     * does not count.
     *
     * @throws MlccException [ApiException] if the request is refused.
     */
    public suspend fun create(request: Request): Answer {
        val body = bytes(shapes.request, shapes.asked(request, false))
        return calls.whole("POST", shapes.path, body, shapes.answer)
    }

    /**
     * The answer as it is made; those to several prompts are mixed. Each collector asks anew; one that
     * stops collecting cancels the work. The flow throws as [create] does, on the way too.
     */
    public fun stream(request: Request): Flow<Chunk> {
        val body = bytes(shapes.request, shapes.asked(request, true))
        return calls.chunks(shapes.path, body, shapes.chunk)
    }

    /** [create] for Java. Cancelling the future cancels the work. */
    public fun createAsync(request: Request): CompletableFuture<Answer> =
        scope.future { create(request) }

    /**
     * [stream] for Java: [each] hears the chunks, one at a time, in threads of mlcc's. The future ends
     * with the answer; cancelling it, or throwing from [each], cancels the work.
     */
    public fun streamAsync(request: Request, each: Consumer<Chunk>): CompletableFuture<Void?> =
        scope.future {
            stream(request).collect { each.accept(it) }
            null
        }
}

/** What the answer says; "" where it does nothing but call tools. */
public val ChatCompletion.text: String get() = choices.first().message.content.orEmpty()

/** What the chunk adds to the answer; "" for the first and the last ones. */
public val ChatCompletionChunk.text: String get() = choices.firstOrNull()?.delta?.content.orEmpty()

/** What the chunk adds to the answer to its prompt. */
public val CompletionChunk.text: String get() = choices.firstOrNull()?.text.orEmpty()

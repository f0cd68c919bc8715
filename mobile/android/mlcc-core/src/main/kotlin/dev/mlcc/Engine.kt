package dev.mlcc

import dev.mlcc.calls.COMPLETION_SHAPES
import dev.mlcc.calls.Calls
import dev.mlcc.calls.Native
import dev.mlcc.calls.Reply
import dev.mlcc.calls.json
import dev.mlcc.calls.translated
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.cancel
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.future.future
import kotlinx.coroutines.withContext
import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.json.JsonObject
import java.io.InputStream
import java.util.concurrent.CompletableFuture

/**
 * A loaded model that answers: OpenAI's API, in this process. [Mlcc.load] makes one.
 *
 * Any thread may call any function. Several requests are answered at once; those beyond what fits wait.
 *
 * @property info what is known of the model.
 */
public class Engine internal constructor(
    private val native: Native,
    private val calls: Calls,
    public val info: EngineInfo,
) : AutoCloseable {
    private val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)

    /** Conversations. */
    public val chat: Chat = Chat(calls, scope)

    /** Texts continued. */
    public val completions: Completions<CompletionRequest, Completion, CompletionChunk> =
        Completions(calls, scope, COMPLETION_SHAPES)

    /** What can be asked. */
    public val models: Models = Models(calls, scope)

    /**
     * The API as HTTP has it, for clients that speak it: [path] is `/v1/...`, with its query if any. An
     * answer of any status is returned; close it, or read its body.
     */
    public suspend fun request(
        method: String,
        path: String,
        headers: Map<String, String> = emptyMap(),
        body: ByteArray = ByteArray(0),
    ): Response {
        val reply = calls.send(method, path, json.encodeToString(headers), body)
        return Response(reply.status, json.decodeFromString(reply.headers), reply)
    }

    /** [request] for Java. Cancelling the future cancels the work. */
    public fun requestAsync(
        method: String,
        path: String,
        headers: Map<String, String>,
        body: ByteArray,
    ): CompletableFuture<Response> = scope.future { request(method, path, headers, body) }

    /** The engine's counters: requests, tokens, pages of the cache. Waits for a step of the model. */
    public suspend fun counters(): JsonObject = withContext(Dispatchers.IO) {
        json.decodeFromString(translated { native.stats() })
    }

    /** Memory is short, or is not any more ([TrimLevel.NONE]). */
    public fun trim(level: TrimLevel): Unit = translated { native.trim(level.ordinal) }

    /**
     * The app is out of sight ([hidden]) or back. Changes something only if the engine was loaded with
     * [EngineOptions.unloadInBackground]: then requests are refused until it is back and loaded again.
     */
    public fun background(hidden: Boolean): Unit = translated { native.background(hidden) }

    /**
     * Give back all memory. Answers that are on their way end with [ClosedException]. May be called
     * again. Waits for the step that runs.
     */
    override fun close() {
        calls.close()
        scope.cancel()
    }
}

/**
 * A loaded model.
 *
 * @property model its name.
 * @property context tokens of the longest conversation.
 * @property maxBatch requests that are answered at once.
 * @property notes for the user: what was chosen smaller than wished, and why.
 */
@Serializable
public data class EngineInfo(
    val model: String,
    val context: Long,
    @SerialName("max_batch")
    val maxBatch: Long,
    val notes: List<String> = emptyList(),
)

/** What to give back when memory is short. Each level includes the one before. */
public enum class TrimLevel {
    /** Nothing: all is as before. */
    NONE,

    /** What is kept of earlier prompts. */
    CACHE,

    /** And refuse new requests, with status 503 and the code `low_memory`, until another trim. */
    REFUSE,
}

/**
 * An answer as HTTP has it. Its body is read once, by [body] or by [stream].
 *
 * @property status 200, or that of a refusal.
 * @property headers by their names in lower case.
 */
public class Response internal constructor(
    public val status: Int,
    public val headers: Map<String, String>,
    private val reply: Reply,
) : AutoCloseable {
    /** The body in pieces as they come. Who stops collecting cancels the work. */
    public val body: Flow<ByteArray> get() = reply.body()

    /** The same for a thread that may wait; an IOException's cause is what [body] would throw. */
    public fun stream(): InputStream = reply.stream()

    /** Nobody reads any more: cancels the work, if it goes on. */
    override fun close(): Unit = reply.close()
}

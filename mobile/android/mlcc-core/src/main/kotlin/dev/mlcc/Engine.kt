package dev.mlcc

import dev.mlcc.calls.COMPLETION_ENDPOINT
import dev.mlcc.calls.Calls
import dev.mlcc.calls.Native
import dev.mlcc.calls.Reply
import dev.mlcc.calls.json
import dev.mlcc.calls.translateErrors
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
 * A loaded model with OpenAI's API, in this process. [Mlcc.load] makes one.
 *
 * Thread-safe. Several requests are answered at once; requests beyond [EngineInfo.maxBatch] wait.
 *
 * @property info the name and limits of the model.
 */
public class Engine internal constructor(
    private val native: Native,
    private val calls: Calls,
    public val info: EngineInfo,
) : AutoCloseable {
    private val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)

    /** Chat completions. */
    public val chat: Chat = Chat(calls, scope)

    /** Text completions. */
    public val completions: Completions<CompletionRequest, Completion, CompletionChunk> =
        Completions(calls, scope, COMPLETION_ENDPOINT)

    /** Transcripts of recordings, by a model such as Whisper. */
    public val audio: Audio = Audio(calls, scope)

    /** The models API. */
    public val models: Models = Models(calls, scope)

    /**
     * The API as HTTP requests, for existing clients: [path] is `/v1/...`, with its query if any. Answers
     * of any status are returned; close them, or read their bodies.
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
        json.decodeFromString(translateErrors { native.stats() })
    }

    /** Give back memory when the system is short of it; [TrimLevel.NONE] when it no longer is. */
    public fun trim(level: TrimLevel): Unit = translateErrors { native.trim(level.ordinal) }

    /**
     * The app moved to the background ([hidden]) or back. Has an effect only with
     * [EngineOptions.unloadInBackground]: requests are refused until the model is loaded again.
     */
    public fun background(hidden: Boolean): Unit = translateErrors { native.background(hidden) }

    /**
     * Unload the model. Running requests end with [ClosedException]. Idempotent. Waits for the current
     * step.
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
 * @property notes for the user, for example which limit was reduced and why.
 */
@Serializable
public data class EngineInfo(
    val model: String,
    val context: Long,
    @SerialName("max_batch")
    val maxBatch: Long,
    val notes: List<String> = emptyList(),
)

/** What to release when memory is short. Each level includes the one before. */
public enum class TrimLevel {
    /** Normal operation. */
    NONE,

    /** Release the prefix cache. */
    CACHE,

    /** Also refuse new requests, with status 503 and the code `low_memory`, until another trim. */
    REFUSE,
}

/**
 * An HTTP response. Its body is read once, by [body] or by [stream].
 *
 * @property status the HTTP status.
 * @property headers values by lower-case names.
 */
public class Response internal constructor(
    public val status: Int,
    public val headers: Map<String, String>,
    private val reply: Reply,
) : AutoCloseable {
    /** The body in parts as they arrive. To stop collecting cancels the request. */
    public val body: Flow<ByteArray> get() = reply.body()

    /** The body as a blocking stream; the cause of an IOException is what [body] would throw. */
    public fun stream(): InputStream = reply.stream()

    /** Stop reading, and cancel the request if it still runs. */
    override fun close(): Unit = reply.close()
}

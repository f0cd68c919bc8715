package dev.mlcc

import dev.mlcc.calls.Calls
import dev.mlcc.calls.Form
import dev.mlcc.calls.callJson
import dev.mlcc.calls.streamChunks
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.future.future
import java.util.concurrent.CompletableFuture

/** `engine.audio`, as OpenAI's clients have it: of a model that transcribes, such as Whisper. */
public class Audio internal constructor(calls: Calls, scope: CoroutineScope) {
    /** Transcripts in the language that is spoken. */
    public val transcriptions: Transcriptions = Transcriptions(calls, scope, "/v1/audio/transcriptions")

    /** Transcripts in English. */
    public val translations: Transcriptions = Transcriptions(calls, scope, "/v1/audio/translations")
}

/**
 * A recording to transcribe.
 *
 * @property file the bytes of a WAV or FLAC file.
 * @property language of the recording, such as `de`; null: the model finds it.
 * @property prompt text that came before: spellings of names, style.
 * @property segments whether the answer has segments with their times.
 * @property fields other fields of the API by their names, such as `temperature`.
 */
public class TranscriptionRequest @JvmOverloads constructor(
    public val file: ByteArray,
    public val language: String? = null,
    public val prompt: String? = null,
    public val segments: Boolean = false,
    public val fields: Map<String, String> = emptyMap(),
)

/** `create` and `stream` of one of the paths for recordings. */
public class Transcriptions internal constructor(
    private val calls: Calls,
    private val scope: CoroutineScope,
    private val path: String,
) {
    /** The whole transcript. Throws [ApiException] if the model does not transcribe. */
    public suspend fun create(request: TranscriptionRequest): Transcription {
        val form = form(request)
        return calls.callJson("POST", path, form.body, Transcription.serializer(), form.headers)
    }

    /** The text as it is found, segment by segment. To stop collecting cancels the request. */
    public fun stream(request: TranscriptionRequest): Flow<TranscriptEvent> {
        val form = form(request, "stream" to "true")
        return calls.streamChunks(path, form.body, TranscriptEvent.serializer(), form.headers)
    }

    /** [create] for Java. Cancelling the future cancels the work. */
    public fun createAsync(request: TranscriptionRequest): CompletableFuture<Transcription> =
        scope.future { create(request) }

    private fun form(request: TranscriptionRequest, vararg more: Pair<String, String>): Form {
        val format = if (request.segments) "verbose_json" else null
        val known = listOf("language" to request.language, "prompt" to request.prompt, "response_format" to format)
        val given = known.mapNotNull { (name, value) -> value?.let { name to it } }
        return Form((given + more).toMap() + request.fields, request.file)
    }
}

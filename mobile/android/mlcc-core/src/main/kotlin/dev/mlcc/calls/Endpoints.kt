package dev.mlcc.calls

import dev.mlcc.ChatCompletion
import dev.mlcc.ChatCompletionChunk
import dev.mlcc.ChatCompletionRequest
import dev.mlcc.Completion
import dev.mlcc.CompletionChunk
import dev.mlcc.CompletionRequest
import kotlinx.serialization.DeserializationStrategy
import kotlinx.serialization.SerializationStrategy

/** One path of the API with the serializers of its request, answer and chunks. */
internal class Endpoint<Request, Answer, Chunk>(
    val path: String,
    val request: SerializationStrategy<Request>,
    val answer: DeserializationStrategy<Answer>,
    val chunk: DeserializationStrategy<Chunk>,
    /** The request with its `stream` field set. */
    val withStream: (request: Request, streamed: Boolean) -> Request,
)

internal val CHAT_ENDPOINT = Endpoint(
    "/v1/chat/completions",
    ChatCompletionRequest.serializer(),
    ChatCompletion.serializer(),
    ChatCompletionChunk.serializer(),
) { request, streamed ->
    if (streamed) request.copy(stream = true) else request.copy(stream = null, streamOptions = null)
}

internal val COMPLETION_ENDPOINT = Endpoint(
    "/v1/completions",
    CompletionRequest.serializer(),
    Completion.serializer(),
    CompletionChunk.serializer(),
) { request, streamed ->
    if (streamed) request.copy(stream = true) else request.copy(stream = null, streamOptions = null)
}

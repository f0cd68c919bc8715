package dev.mlcc.calls

import dev.mlcc.ChatCompletion
import dev.mlcc.ChatCompletionChunk
import dev.mlcc.ChatCompletionRequest
import dev.mlcc.Completion
import dev.mlcc.CompletionChunk
import dev.mlcc.CompletionRequest
import kotlinx.serialization.DeserializationStrategy
import kotlinx.serialization.SerializationStrategy

/** What an address of the API takes and gives. */
internal class Shapes<Request, Answer, Chunk>(
    val path: String,
    val request: SerializationStrategy<Request>,
    val answer: DeserializationStrategy<Answer>,
    val chunk: DeserializationStrategy<Chunk>,
    /** The request as it is sent: streamed or not, as the function that was called says. */
    val asked: (request: Request, streamed: Boolean) -> Request,
)

internal val CHAT_SHAPES = Shapes(
    "/v1/chat/completions",
    ChatCompletionRequest.serializer(),
    ChatCompletion.serializer(),
    ChatCompletionChunk.serializer(),
) { request, streamed ->
    if (streamed) request.copy(stream = true) else request.copy(stream = null, streamOptions = null)
}

internal val COMPLETION_SHAPES = Shapes(
    "/v1/completions",
    CompletionRequest.serializer(),
    Completion.serializer(),
    CompletionChunk.serializer(),
) { request, streamed ->
    if (streamed) request.copy(stream = true) else request.copy(stream = null, streamOptions = null)
}

package dev.mlcc.sample

import androidx.compose.runtime.getValue
import androidx.compose.runtime.mutableStateListOf
import androidx.compose.runtime.mutableStateOf
import androidx.compose.runtime.setValue
import dev.mlcc.ChatCompletionChunk
import dev.mlcc.ChatCompletionRequest
import dev.mlcc.Message
import dev.mlcc.MlccException
import dev.mlcc.Role
import dev.mlcc.text
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Job
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.launch

/** A line of the conversation on the screen. */
data class Line(val role: Role, val text: String)

/**
 * A conversation with a model, including the running answer. Independent of the screen, and of the engine
 * except for the function that streams an answer: `engine.chat.completions::stream`.
 */
class Chat(
    private val scope: CoroutineScope,
    private val stream: (ChatCompletionRequest) -> Flow<ChatCompletionChunk>,
) {
    /** The conversation; the last line grows while it is answered. */
    val lines = mutableStateListOf<Line>()

    /** The error of the last answer. */
    var error by mutableStateOf<String?>(null)
        private set

    /** Whether an answer is running. */
    var isAnswering by mutableStateOf(false)
        private set

    private var answering: Job? = null

    /** Send a message, unless an answer is running. */
    fun ask(text: String) {
        if (text.isBlank() || isAnswering) return
        lines += Line(Role.USER, text.trim())
        val request = ChatCompletionRequest(lines.map { Message(it.role, it.text) })
        lines += Line(Role.ASSISTANT, "")
        error = null
        isAnswering = true
        answering = scope.launch { answer(request) }
    }

    /** Stop the answer; its text so far stays. */
    fun stop() {
        answering?.cancel()
    }

    private suspend fun answer(request: ChatCompletionRequest) {
        try {
            stream(request).collect { chunk ->
                lines[lines.lastIndex] = lines.last().let { it.copy(text = it.text + chunk.text) }
            }
        } catch (refused: MlccException) {
            error = refused.message
        } finally {
            isAnswering = false
        }
    }
}

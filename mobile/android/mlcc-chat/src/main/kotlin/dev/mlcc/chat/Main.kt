package dev.mlcc.chat

import dev.mlcc.ChatCompletionRequest
import dev.mlcc.Engine
import dev.mlcc.EngineOptions
import dev.mlcc.Message
import dev.mlcc.Mlcc
import dev.mlcc.MlccException
import dev.mlcc.ModelSource
import dev.mlcc.Progress
import dev.mlcc.Role
import dev.mlcc.model.ModelStore
import dev.mlcc.text
import kotlinx.coroutines.flow.onEach
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.runBlocking
import java.io.PrintStream
import java.nio.file.Path
import java.nio.file.Paths
import kotlin.system.exitProcess

private val screen = PrintStream(System.out, true, Charsets.UTF_8)

/** A chat with the model in a folder or at a URL; with a question, answers only that. */
public fun main(arguments: Array<String>) {
    if (arguments.isEmpty()) {
        System.err.println("arguments: MODEL [QUESTION]    MODEL: a folder that mlcc compile made, or its URL")
        exitProcess(2)
    }
    try {
        runBlocking { chat(arguments[0], arguments.getOrNull(1)) }
    } catch (error: MlccException) {
        System.err.println("mlcc: ${error.message}")
        exitProcess(2)
    }
}

private suspend fun chat(model: String, question: String?) {
    val options = EngineOptions(onProgress = ::show)
    Mlcc.load(ModelSource.of(model, ModelStore(cache())), options).use { engine ->
        val messages = mutableListOf<Message>()
        if (question != null) {
            engine.turn(messages, question)
            return
        }
        System.err.println("${engine.info.model}: ${engine.info.context} tokens. An empty line ends.")
        while (true) {
            screen.print("> ")
            val line = readlnOrNull()
            if (line.isNullOrBlank()) return
            engine.turn(messages, line)
        }
    }
}

/** Sends a question and prints the answer as it arrives. */
private suspend fun Engine.turn(messages: MutableList<Message>, question: String) {
    messages += Message(Role.USER, question)
    val answer = chat.completions.stream(ChatCompletionRequest(messages, temperature = 0.0))
        .onEach { screen.print(it.text) }
        .toList()
    screen.println()
    messages += Message(Role.ASSISTANT, answer.joinToString("") { it.text })
}

private fun show(progress: Progress) {
    if (progress is Progress.Download) System.err.print("\r${progress.done * 100 / progress.total} % ")
}

private fun cache(): Path {
    val base = System.getenv("XDG_CACHE_HOME")?.let { Paths.get(it) }
    return (base ?: Paths.get(System.getProperty("user.home"), ".cache")).resolve("mlcc/models")
}

package dev.mlcc.jvm

import dev.mlcc.ChatCompletionRequest
import dev.mlcc.Engine
import dev.mlcc.Message
import dev.mlcc.Mlcc
import dev.mlcc.ModelSource
import dev.mlcc.Role
import kotlinx.coroutines.runBlocking
import java.lang.management.ManagementFactory
import java.nio.file.Paths

/**
 * Serves `benchmarks/peers/bindings.py`. Each line of standard input is `whole` or `stream` and a number of
 * tokens; the reply has the seconds, the tokens, and the microseconds of CPU time of Java's threads.
 */
fun main(arguments: Array<String>) {
    runBlocking { Mlcc.load(ModelSource.Folder(Paths.get(arguments[0]))) }.use { engine ->
        println("ready")
        generateSequence(::readlnOrNull).forEach { println(measured(engine, it)) }
    }
}

private fun measured(engine: Engine, order: String): String {
    val (kind, tokens) = order.split(' ')
    val messages = listOf(Message(Role.USER, "Count up from one."))
    val request = ChatCompletionRequest(messages, temperature = 0.0, maxTokens = tokens.toInt(), ignoreEos = true)
    val computed = javaSeconds()
    val began = System.nanoTime()
    runBlocking {
        if (kind == "whole") engine.chat.completions.create(request)
        else engine.chat.completions.stream(request).collect { }
    }
    val seconds = (System.nanoTime() - began) / 1e9
    return "$seconds $tokens ${(javaSeconds() - computed) * 1e6}"
}

/** CPU time of all of Java's threads except the one that owns Python, which computes the model. */
private fun javaSeconds(): Double {
    val threads = ManagementFactory.getThreadMXBean()
    return threads.allThreadIds.sumOf { id ->
        val name = threads.getThreadInfo(id)?.threadName
        if (name == null || name == "mlcc") 0L else maxOf(threads.getThreadCpuTime(id), 0L)
    } / 1e9
}

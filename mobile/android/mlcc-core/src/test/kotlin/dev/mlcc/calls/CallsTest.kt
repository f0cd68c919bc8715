package dev.mlcc.calls

import dev.mlcc.ApiException
import dev.mlcc.ArtifactException
import dev.mlcc.CapacityException
import dev.mlcc.ChatCompletionChunk
import dev.mlcc.ChatCompletionRequest
import dev.mlcc.ClosedException
import dev.mlcc.Engine
import dev.mlcc.EngineInfo
import dev.mlcc.Message
import dev.mlcc.Mlcc
import dev.mlcc.MlccException
import dev.mlcc.Progress
import dev.mlcc.Role
import dev.mlcc.SetupException
import dev.mlcc.TranscriptionRequest
import dev.mlcc.text
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.async
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.Timeout
import java.util.concurrent.CompletableFuture
import java.util.concurrent.ExecutionException

/** Coroutines and futures over calls, in orders that a script chooses. */
@Timeout(60)
class CallsTest {
    private val hello = ChatCompletionRequest(listOf(Message(Role.USER, "Hello")))

    private fun chunk(text: String) =
        """data: {"id":"a","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"$text"}}]}"""

    private fun engine(native: ScriptedNative): Engine {
        val calls = Calls(native).apply { start() }
        return Engine(native, calls, EngineInfo("m", 16, 1))
    }

    @Test
    fun `a recording is sent as a form`() = runBlocking {
        val bodies = mutableListOf<Pair<String, String>>()
        val native = ScriptedNative { call, path, body ->
            bodies += path to body
            val event = """data: {"type":"transcript.text.done","text":"ab"}"""
            val answer = if ("stream" in body) "$event\n\n" else """{"text":"ab","usage":{"seconds":2}}"""
            batch(head(call), body(call, answer), end(call))
        }
        val request = TranscriptionRequest("RIFF".toByteArray(), "de", segments = true)
        engine(native).use { engine ->
            assertEquals("ab", engine.audio.transcriptions.create(request).text)
            assertEquals("ab", engine.audio.translations.stream(request).first().text)
        }
        assertEquals(listOf("/v1/audio/transcriptions", "/v1/audio/translations"), bodies.map { it.first })
        val boundary = bodies[0].second.lineSequence().first()
        val field = "\r\nContent-Disposition: form-data; name="
        val expected = "$boundary$field\"language\"\r\n\r\nde\r\n" +
            "$boundary$field\"response_format\"\r\n\r\nverbose_json\r\n" +
            "$boundary$field\"file\"; filename=\"recording\"\r\n\r\nRIFF\r\n$boundary--\r\n"
        assertEquals(expected, bodies[0].second)
        assertTrue("name=\"stream\"\r\n\r\ntrue" in bodies[1].second)
    }

    @Test
    fun `chunks come in order, several to a piece`() = runBlocking {
        val native = ScriptedNative { call, path, body ->
            assertEquals("/v1/chat/completions", path)
            assertTrue("\"stream\":true" in body, body)
            batch(head(call), body(call, "${chunk("a")}\n\n${chunk("b")}\n\n"))
            batch(body(call, "${chunk("c")}\n\ndata: [DONE]\n\n"), end(call))
        }
        engine(native).use { engine ->
            val texts = engine.chat.completions.stream(hello).toList().map { it.text }
            assertEquals(listOf("a", "b", "c"), texts)
        }
    }

    @Test
    fun `who stops collecting cancels the call, and others go on`() = runBlocking {
        val native = ScriptedNative { call, _, _ ->
            batch(head(call), body(call, "${chunk("a")}\n\n"))
            if (call == 2L) batch(body(call, "${chunk("b")}\n\n"), end(call))
        }
        engine(native).use { engine ->
            assertEquals("a", engine.chat.completions.stream(hello).first().text)
            assertEquals(1L, native.cancelled.take())
            assertEquals(2, engine.chat.completions.stream(hello).toList().size)
        }
    }

    @Test
    fun `a coroutine that is cancelled cancels its call, before and after the head`() = runBlocking {
        val native = ScriptedNative { call, _, _ -> if (call == 2L) batch(head(call)) }
        engine(native).use { engine ->
            for (call in 1L..2L) {
                val job = launch { engine.chat.completions.create(hello) }
                while (native.begun.isEmpty()) kotlinx.coroutines.yield()
                native.begun.take()
                job.cancelAndJoin()
                assertEquals(call, native.cancelled.take())
                native.cancelled.clear()
            }
        }
    }

    @Test
    fun `a refusal has the status and the words of the API`() = runBlocking {
        val error = """{"error":{"message":"no","type":"invalid_request_error","param":"stop","code":"x"}}"""
        val native = ScriptedNative { call, _, _ -> batch(head(call, 400), body(call, error), end(call)) }
        engine(native).use { engine ->
            val whole = runCatching { engine.chat.completions.create(hello) }.exceptionOrNull()
            val stream = engine.chat.completions.stream(hello)
            for (thrown in listOf(whole, runCatching { stream.toList() }.exceptionOrNull())) {
                val refused = thrown as ApiException
                assertEquals(400 to "stop", refused.status to refused.error.param)
                assertEquals("x" to "no", refused.code to refused.message)
            }
        }
    }

    @Test
    fun `a stream that breaks throws after what came`() = runBlocking {
        val broken = """data: {"error":{"message":"lost","type":"server_error","code":"device_lost"}}"""
        val native = ScriptedNative { call, _, _ ->
            batch(head(call), body(call, "${chunk("a")}\n\n"), body(call, "$broken\n\n"), end(call))
        }
        engine(native).use { engine ->
            val seen = mutableListOf<ChatCompletionChunk>()
            val thrown = runCatching { engine.chat.completions.stream(hello).collect(seen::add) }
            assertEquals("device_lost", (thrown.exceptionOrNull() as ApiException).code)
            assertEquals(1, seen.size)
        }
    }

    @Test
    fun `closing ends every call, and later ones`(): Unit = runBlocking {
        val native = ScriptedNative { call, _, _ -> if (call == 1L) batch(head(call)) }
        val engine = engine(native)
        val answers = List(2) {
            async { runCatching { engine.chat.completions.create(hello) }.exceptionOrNull() }
        }
        while (native.begun.size < 2) kotlinx.coroutines.yield()
        engine.close()
        answers.forEach { assertTrue(it.await() is ClosedException) }
        assertThrows(ClosedException::class.java) {
            runBlocking { engine.chat.completions.create(hello) }
        }
    }

    @Test
    fun `a future answers, fails and cancels`() {
        val whole = """{"id":"a","created":1,"model":"m","usage":
            {"prompt_tokens":1,"completion_tokens":1,"total_tokens":2,
            "prompt_tokens_details":{"cached_tokens":0}},
            "choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}"""
        val native = ScriptedNative { call, _, _ ->
            when (call) {
                1L -> batch(head(call), body(call, whole), end(call))
                2L -> batch(end(call, Code.NO_MEMORY, """{"error":{"message":"full","type":"t"}}"""))
            }
        }
        engine(native).use { engine ->
            assertEquals("hi", engine.chat.completions.createAsync(hello).get().text)
            val failed = assertThrows(ExecutionException::class.java) {
                engine.chat.completions.createAsync(hello).get()
            }
            assertTrue(failed.cause is CapacityException)
            val waiting: CompletableFuture<*> = engine.chat.completions.createAsync(hello)
            while (native.begun.size < 3) Thread.yield()
            waiting.cancel(true)
            while (native.cancelled.take() != 3L) Unit
        }
    }

    @Test
    fun `a start tells its progress and ends with the engine or the reason`() = runBlocking {
        val events = mutableListOf<Progress>()
        val native = ScriptedNative()
        native.onEngineEvent(Event.PROGRESS, text = """{"done":1,"total":2}""")
        native.onEngineEvent(Event.READY, text = """{"model":"m","context":8,"max_batch":2,"notes":["n"]}""")
        Mlcc.start(events::add) { native }.use { engine ->
            assertEquals(EngineInfo("m", 8, 2, listOf("n")), engine.info)
        }
        assertEquals(listOf<Progress>(Progress.Load(1, 2)), events)
    }

    @Test
    fun `each code of a failed start is an exception of its own`() {
        val error = """{"error":{"message":"why","type":"server_error","code":"c"}}"""
        for ((code, kind) in listOf(
            Code.BAD_MODEL to ArtifactException::class.java,
            Code.NO_MEMORY to CapacityException::class.java,
            Code.NO_PYTHON to SetupException::class.java,
        )) {
            val native = ScriptedNative().apply { onEngineEvent(Event.FAILED, code, error) }
            val thrown = assertThrows(kind) { runBlocking { Mlcc.start({ }) { native } } }
            assertEquals("why" to "c", thrown.message to (thrown as MlccException).code)
        }
    }

    @Test
    fun `a start that is given up closes the engine`() = runBlocking {
        val native = ScriptedNative()
        val start = async { Mlcc.start({ }) { native } }
        kotlinx.coroutines.yield()
        start.cancelAndJoin() // returns only when the thread that polls has ended
        assertTrue(runCatching { start.await() }.exceptionOrNull() is CancellationException)
    }
}

package dev.mlcc

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.int
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import org.junit.jupiter.api.AfterAll
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.BeforeAll
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.Timeout
import org.junit.jupiter.api.condition.EnabledIfSystemProperty
import java.nio.file.Files
import java.nio.file.Path
import java.nio.file.Paths
import java.util.Collections

/**
 * The demo model in this JVM: Kotlin, JNI, the C ABI, Python's engine and compiled kernels. Runs where
 * `mlcc.demo` names the compiled model and `mlcc.libraries` the native parts (tests/e2e/mobile/test_kotlin.py).
 */
@EnabledIfSystemProperty(named = "mlcc.demo", matches = ".+")
@Timeout(120)
class DemoTest {
    private fun ask(text: String, tokens: Int? = null) =
        ChatCompletionRequest(listOf(Message(Role.USER, text)), temperature = 0.0, maxTokens = tokens)

    private val sum = ask("What is 17 + 25?")
    private val long = ask("Count up from one.", 400).copy(ignoreEos = true)

    private suspend fun idle(): Boolean {
        val counters = engine.counters()["engine"]!!.jsonObject
        return counters["running"]!!.jsonPrimitive.int + counters["waiting"]!!.jsonPrimitive.int == 0
    }

    private suspend fun becomesIdle() {
        while (!idle()) delay(1)
    }

    @Test
    fun `it answers`() = runBlocking {
        val answer = engine.chat.completions.create(sum)
        assertTrue("42" in answer.text, answer.text)
        assertEquals(FinishReason.STOP, answer.choices[0].finishReason)
        assertEquals(answer.usage.totalTokens, answer.usage.promptTokens + answer.usage.completionTokens)
        assertEquals(engine.info.model, answer.model)
    }

    @Test
    fun `a stream says the same, and its usage`() = runBlocking {
        val request = sum.copy(streamOptions = StreamOptions(includeUsage = true))
        val chunks = engine.chat.completions.stream(request).toList()
        val whole = engine.chat.completions.create(sum)
        assertEquals(whole.text, chunks.joinToString("") { it.text })
        assertEquals(whole.usage, chunks.last().usage)
    }

    @Test
    fun `letters of all alphabets cross unharmed`() = runBlocking {
        val text = "Grüße, γειά, привет, שלום, سلام, नमस्ते, สวัสดี, 你好, こんにちは, 안녕 🦊 \u0000 \ud83e\udd8a"
        val part = engine.completions.create(
            CompletionRequest(Prompt.Text(text), maxTokens = 1, temperature = 0.0),
        )
        val tokens = part.usage.promptTokens
        val parts = ask(text, 1).copy(messages = listOf(Message(Role.USER, Content.Parts(listOf(TextPart(text = text))))))
        assertTrue(tokens > 20 && engine.chat.completions.create(parts).usage.promptTokens >= tokens)
    }

    @Test
    fun `a collector that stops cancels the request`() = runBlocking {
        assertEquals(3, engine.chat.completions.stream(long).take(3).toList().size)
        becomesIdle()
        val waiting = async(Dispatchers.Default) { engine.chat.completions.create(long) }
        while (idle()) delay(1)
        waiting.cancel()
        becomesIdle()
        val future = engine.chat.completions.createAsync(long)
        while (idle()) delay(1)
        future.cancel(true)
        becomesIdle()
    }

    @Test
    fun `many ask at once and each gets its own answer`() = runBlocking {
        val pairs = listOf(2 to 3, 10 to 4, 7 to 7, 30 to 12, 1 to 1, 20 to 5, 9 to 8, 15 to 15, 6 to 50, 40 to 2)
        val alone = pairs.map { (a, b) -> engine.chat.completions.create(ask("What is $a + $b?")).text }
        val together = pairs.map { (a, b) ->
            async(Dispatchers.Default) {
                engine.chat.completions.stream(ask("What is $a + $b?")).toList().joinToString("") { it.text }
            }
        }.awaitAll()
        assertEquals(alone, together)
    }

    @Test
    fun `completions, one choice per prompt`() = runBlocking {
        val request = CompletionRequest(
            Prompt.Texts(listOf("one two", "three")), maxTokens = 4, temperature = 0.0, ignoreEos = true,
        )
        val whole = engine.completions.create(request)
        val texts = Array(2) { "" }
        engine.completions.stream(request).collect { chunk ->
            chunk.choices.forEach { texts[it.index.toInt()] += it.text }
        }
        assertEquals(whole.choices.sortedBy { it.index }.map { it.text }, texts.toList())
        assertEquals(8, whole.usage.completionTokens)
    }

    @Test
    fun `the model is listed, another is not found`() = runBlocking {
        assertEquals(listOf(engine.info.model), engine.models.list().data.map { it.id })
        assertEquals(engine.info.model, engine.models.retrieve(engine.info.model).id)
        val missing = assertThrows(ApiException::class.java) {
            runBlocking { engine.models.retrieve("other") }
        }
        assertEquals(404 to "model_not_found", missing.status to missing.code)
    }

    @Test
    fun `a wrong request is refused by name`() {
        val wrong = sum.copy(temperature = 3.0)
        for (asking in listOf<suspend () -> Any>(
            { engine.chat.completions.create(wrong) },
            { engine.chat.completions.stream(wrong).first() },
        )) {
            val refused = assertThrows(ApiException::class.java) { runBlocking { asking() } }
            assertEquals(400 to "temperature", refused.status to refused.error.param)
        }
    }

    @Test
    fun `the API as HTTP has it`() = runBlocking {
        engine.request("GET", "/v1/nothing").use { assertEquals(404, it.status) }
        engine.request("GET", "/health").use { response ->
            assertEquals("application/json", response.headers["content-type"])
            val body = response.body.toList().joinToString("") { it.decodeToString() }
            assertTrue(engine.info.model in body, body)
        }
    }

    @Test
    fun `a thread reads a stream, and closing it cancels`() {
        val body = """{"messages":[{"role":"user","content":"Count"}],"stream":true,"max_tokens":400,
            "ignore_eos":true}"""
        val json = mapOf("content-type" to "application/json")
        val asked = { engine.requestAsync("POST", "/v1/chat/completions", json, body.encodeToByteArray()) }
        val lines = asked().get().stream().bufferedReader().readLines()
        assertEquals("data: [DONE]", lines.last { it.isNotEmpty() })
        asked().get().stream().use { assertEquals('d'.code, it.read()) }
        runBlocking { becomesIdle() }
    }

    @Test
    fun `memory is short for a while`() = runBlocking {
        engine.trim(TrimLevel.REFUSE)
        val refused = runCatching { engine.chat.completions.create(sum) }.exceptionOrNull() as ApiException
        assertEquals(503 to "low_memory", refused.status to refused.code)
        engine.trim(TrimLevel.NONE)
        assertTrue("42" in engine.chat.completions.create(sum).text)
    }

    @Test
    fun `a tokenizer of the host takes the place of Python's`() = runBlocking {
        val calls = Collections.synchronizedList(mutableListOf<String>())
        val options = EngineOptions(context = 256, maxBatch = 1, tokenizer = { Letters(calls) })
        Mlcc.load(source, options).use { other ->
            val request = CompletionRequest(Prompt.Text("héy"), maxTokens = 2, temperature = 0.0)
            assertEquals(3, other.completions.create(request).usage.promptTokens)
            assertTrue("encode héy" in calls, calls.toString())
            val failed = runCatching {
                other.completions.create(CompletionRequest("fail"))
            }.exceptionOrNull() as ApiException
            assertEquals(400 to "tokenizer_failed", failed.status to failed.code)
            assertTrue("no such letters 🦊" in failed.message, failed.message)
        }
        assertEquals("close", calls.last())
    }

    @Test
    fun `closing while it streams ends the stream, and engines come and go`() = runBlocking {
        for (round in 1..3) {
            val other = Mlcc.load(source, EngineOptions(context = 256, maxBatch = 1))
            val stream = other.chat.completions.stream(long.copy(maxTokens = 200))
            val thrown = runCatching { stream.collect { other.close() } }.exceptionOrNull()
            assertTrue(thrown is ClosedException, thrown.toString())
            assertThrows(ClosedException::class.java) { runBlocking { other.models.list() } }
            other.close()
        }
    }

    @Test
    fun `what is no model, or is damaged, is refused by type`() {
        val empty = Files.createTempDirectory("mlcc")
        val damaged = Files.createTempDirectory("mlcc")
        Files.list(demo).use { files -> files.forEach { if (Files.isRegularFile(it)) Files.copy(it, damaged.resolve(it.fileName)) } }
        val manifest = damaged.resolve("mlcc.json")
        Files.write(manifest, Files.readAllBytes(manifest).also { it[100]++ })
        for (folder in listOf(empty, damaged)) {
            val refused = assertThrows(ArtifactException::class.java) {
                runBlocking { Mlcc.load(ModelSource.Folder(folder)) }
            }
            assertTrue(folder.toString() in refused.message, refused.message)
            folder.toFile().deleteRecursively()
        }
        assertThrows(CapacityException::class.java) {
            runBlocking { Mlcc.load(source, EngineOptions(memoryBytes = 1 shl 20)) }
        }
    }

    @Test
    fun `a process has one interpreter`() {
        val elsewhere = EngineOptions(files = NativeFiles(pythonPath = listOf(Paths.get("/elsewhere"))))
        val error = assertThrows(SetupException::class.java) {
            runBlocking { Mlcc.load(source, elsewhere) }
        }
        assertTrue("a process has one interpreter" in error.message, error.message)
        assertEquals("other_python", error.code)
    }

    @Test
    fun `Java's futures`() {
        val texts = Collections.synchronizedList(mutableListOf<String>())
        engine.chat.completions.streamAsync(sum) { texts += it.text }.get()
        assertTrue("42" in texts.joinToString(""))
        Mlcc.loadAsync(source, EngineOptions(context = 64)).get().use { assertEquals(64, it.info.context) }
    }

    /** Its ids are the letters', shifted so that the model knows them. */
    private class Letters(private val calls: MutableList<String>) : Tokenizer {
        override val specialTokens = listOf("<|im_end|>")

        override fun encode(text: String, special: Boolean): IntArray {
            calls += "encode $text"
            require(text != "fail") { "no such letters 🦊" }
            return text.map { 50 + it.code % 100 }.toIntArray()
        }

        override fun decode(ids: IntArray) = ids.joinToString("") { "é" }

        override fun close() {
            calls += "close"
        }
    }

    companion object {
        private lateinit var demo: Path
        private lateinit var source: ModelSource
        private lateinit var engine: Engine

        @BeforeAll
        @JvmStatic
        fun load() {
            demo = Paths.get(System.getProperty("mlcc.demo"))
            source = ModelSource.Folder(demo)
            engine = runBlocking { Mlcc.load(source) }
        }

        @AfterAll
        @JvmStatic
        fun close() = engine.close()
    }
}

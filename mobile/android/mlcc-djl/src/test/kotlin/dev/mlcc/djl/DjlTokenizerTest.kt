package dev.mlcc.djl

import dev.mlcc.ArtifactException
import dev.mlcc.ChatCompletionRequest
import dev.mlcc.EngineOptions
import dev.mlcc.Message
import dev.mlcc.Mlcc
import dev.mlcc.ModelSource
import dev.mlcc.Role
import dev.mlcc.text
import kotlinx.serialization.Serializable
import kotlinx.serialization.json.Json
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.condition.EnabledIfSystemProperty
import org.junit.jupiter.api.io.TempDir
import java.nio.file.Files
import java.nio.file.Path
import java.nio.file.Paths

/** Compares with Python's tokenizer on the same texts, and runs in an engine. */
@EnabledIfSystemProperty(named = "mlcc.demo", matches = ".+")
class DjlTokenizerTest {
    /** A text, whether special tokens are added, and its ids. */
    @Serializable
    private class Encoded(val text: String, val special: Boolean, val ids: List<Int>)

    /** Ids, which may end within a character, and their text. */
    @Serializable
    private class Decoded(val ids: List<Int>, val text: String)

    @Serializable
    private class Cases(
        val folder: String,
        val special: List<String>,
        val encoded: List<Encoded>,
        val decoded: List<Decoded>,
    )

    private val demo = Paths.get(System.getProperty("mlcc.demo"))

    @Test
    fun `ids and texts are Python's`() {
        val file = Paths.get(System.getProperty("mlcc.tokenizer.cases"))
        val all = Json.decodeFromString<List<Cases>>(Files.readAllBytes(file).decodeToString())
        assertTrue(all.isNotEmpty())
        for (expected in all) {
            DjlTokenizer.open(Paths.get(expected.folder)).use { tokenizer ->
                assertEquals(expected.special.sorted(), tokenizer.specialTokens.sorted())
                for (case in expected.encoded) {
                    val ids = tokenizer.encode(case.text, case.special)
                    assertEquals(case.ids, ids.toList(), case.text)
                }
                for (case in expected.decoded) {
                    assertEquals(case.text, tokenizer.decode(case.ids.toIntArray()))
                }
            }
        }
    }

    @Test
    fun `a long text is not cut`() = DjlTokenizer.open(demo).use {
        assertTrue(it.encode("one two three ".repeat(1000), false).size > 2000)
    }

    @Test
    fun `an engine answers with it`() {
        val options = EngineOptions(tokenizer = DjlTokenizer)
        Mlcc.loadAsync(ModelSource.Folder(demo), options).get().use { engine ->
            val ask = ChatCompletionRequest(listOf(Message(Role.USER, "What is 17 + 25?")), temperature = 0.0)
            val answer = engine.chat.completions.createAsync(ask).get().text
            assertTrue("42" in answer, answer)
        }
    }

    @Test
    fun `a file that is no tokenizer is refused`(@TempDir folder: Path) {
        Files.write(folder.resolve("tokenizer.json"), "{}".encodeToByteArray())
        assertThrows(ArtifactException::class.java) { DjlTokenizer.open(folder) }
    }
}

package dev.mlcc.sample

import androidx.compose.ui.ImageComposeScene
import androidx.compose.ui.unit.Density
import dev.mlcc.ApiException
import dev.mlcc.ChatCompletionChunk
import dev.mlcc.ChatCompletionRequest
import dev.mlcc.ErrorObject
import dev.mlcc.Mlcc
import dev.mlcc.ModelSource
import dev.mlcc.Role
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.runBlocking
import org.jetbrains.skia.Bitmap
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.condition.EnabledIfSystemProperty
import java.nio.file.Paths

/** The app's logic, and its screen drawn without a window. */
class ChatTest {
    private fun chat(stream: (ChatCompletionRequest) -> Flow<ChatCompletionChunk>) =
        Chat(CoroutineScope(Dispatchers.Unconfined), stream)

    /** How many pixels are not of the most common colour. */
    private fun drawn(chat: Chat): Int {
        val scene = ImageComposeScene(WIDTH, HEIGHT, Density(1f)) { ChatScreen(chat) }
        try {
            repeat(3) { frame -> scene.render(frame * FRAME_NS) }
            val bitmap = Bitmap.makeFromImage(scene.render(3 * FRAME_NS))
            val colors = List(WIDTH * HEIGHT) { at -> bitmap.getColor(at % WIDTH, at / WIDTH) }
            return colors.size - colors.groupingBy { it }.eachCount().values.max()
        } finally {
            scene.close()
        }
    }

    @Test
    fun `messages are drawn`() {
        val chat = chat { flow { awaitCancellation() } }
        val empty = drawn(chat)
        assertTrue(empty > 100, "$empty")
        chat.ask("What is 17 + 25?")
        val asked = drawn(chat)
        assertTrue(asked > empty + 1000, "$asked, before $empty")
        chat.stop()
        assertEquals(listOf(Line(Role.USER, "What is 17 + 25?"), Line(Role.ASSISTANT, "")), chat.lines.toList())
        assertTrue(!chat.isAnswering)
    }

    @Test
    fun `a refusal is shown, and the next question is sent`() {
        val asked = mutableListOf<ChatCompletionRequest>()
        val chat = chat { flow { asked += it; throw ApiException(503, ErrorObject("full", "server_error")) } }
        chat.ask("one")
        assertEquals("full", chat.error)
        chat.ask(" two ")
        chat.ask(" ")
        assertEquals(listOf(1, 3), asked.map { it.messages.size })
        assertEquals("two", chat.lines[2].text)
    }

    @Test
    @EnabledIfSystemProperty(named = "mlcc.demo", matches = ".+")
    fun `the demo model answers in the app`() = runBlocking {
        val source = ModelSource.Folder(Paths.get(System.getProperty("mlcc.demo")))
        Mlcc.load(source).use { engine ->
            val chat = chat(engine.chat.completions::stream)
            chat.ask("What is 17 + 25?")
            while (chat.isAnswering) delay(1)
            assertTrue("42" in chat.lines.last().text, chat.lines.last().text)
        }
    }

    private companion object {
        const val WIDTH = 400
        const val HEIGHT = 600
        const val FRAME_NS = 16_000_000L
    }
}

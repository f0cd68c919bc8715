package dev.mlcc

import dev.mlcc.calls.json
import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.jsonArray
import kotlinx.serialization.json.jsonObject
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Test
import java.nio.file.Files
import javax.sound.sampled.AudioFormat
import javax.sound.sampled.AudioSystem

/** What requests are in JSON, and answers in Kotlin. */
class ApiTest {
    private val hello = listOf(Message(Role.USER, "Hello"))

    @Test
    fun `what is absent is not sent`() {
        val sent = json.encodeToString(ChatCompletionRequest(hello, temperature = 0.0))
        assertEquals(
            """{"messages":[{"role":"user","content":"Hello"}],"temperature":0.0}""",
            sent,
        )
    }

    @Test
    fun `names are those of the API`() {
        val request = ChatCompletionRequest(
            hello,
            maxTokens = 3,
            topP = 0.5,
            streamOptions = StreamOptions(includeUsage = true),
            user = JsonPrimitive("me"),
        )
        val sent = json.encodeToJsonElement(ChatCompletionRequest.serializer(), request).jsonObject
        val names = setOf("messages", "max_tokens", "top_p", "stream_options", "user")
        assertEquals(names, sent.keys)
    }

    @Test
    fun `a union is the JSON of whichever type it has`() {
        for ((prompt, text) in listOf(
            Prompt.Text("a") to "\"a\"",
            Prompt.Texts(listOf("a", "b")) to """["a","b"]""",
            Prompt.Tokens(listOf(1, 2)) to "[1,2]",
            Prompt.TokenLists(listOf(listOf(1), listOf(2, 3))) to "[[1],[2,3]]",
        )) {
            val sent = json.encodeToString(CompletionRequest(prompt))
            assertEquals("""{"prompt":$text}""", sent)
            assertEquals(prompt, json.decodeFromString<CompletionRequest>(sent).prompt)
        }
        assertThrows(SerializationException::class.java) {
            json.decodeFromString<CompletionRequest>("""{"prompt":{"a":1}}""")
        }
    }

    @Test
    fun `a message of parts says their type`() {
        val parts = Content.Parts(listOf(TextPart(text = "a"), TextPart(text = "b")))
        val sent = json.encodeToJsonElement(Message.serializer(), Message(Role.USER, parts))
        val first = sent.jsonObject["content"]!!.jsonArray[0].jsonObject
        assertEquals(JsonPrimitive("text"), first["type"])
    }

    @Test
    fun `images and sounds are parts of a message`() {
        val file = Files.createTempFile("sound", ".wav")
        Files.write(file, "RIFF".toByteArray())
        val parts = listOf(Media.sound(file), Media.image(file), TextPart(text = "a"))
        val sent = json.encodeToString(Message(Role.USER, Content.Parts(parts)))
        val expected = """[{"type":"input_audio","input_audio":{"data":"UklGRg=="}},""" +
            """{"type":"image_url","image_url":"data:image/*;base64,UklGRg=="},""" +
            """{"type":"text","text":"a"}]"""
        assertEquals("""{"role":"user","content":$expected}""", sent)
        assertEquals(Content.Parts(parts), json.decodeFromString<Message>(sent).content)
    }

    @Test
    fun `samples are a WAV`() {
        val file = Media.wav(shortArrayOf(0, 16384, -16384), 16000)
        AudioSystem.getAudioInputStream(file.inputStream()).use { stream ->
            assertEquals(AudioFormat(16000f, 16, 1, true, false).toString(), stream.format.toString())
            assertEquals(listOf<Byte>(0, 0, 0, 64, 0, -64), stream.readBytes().toList())
        }
        assertEquals(Media.sound(file), Media.sound(shortArrayOf(0, 16384, -16384), 16000))
    }

    @Test
    fun `a builder makes what named arguments make`() {
        val named = ChatCompletionRequest(hello, seed = 7, stop = Stop.Text("."), maxTokens = 5)
        val built = ChatCompletionRequest.Builder(hello)
            .seed(7).stop(Stop.Text(".")).maxTokens(5).build()
        assertEquals(named, built)
    }

    @Test
    fun `an answer may have fields that this version does not know`() {
        val chunk = json.decodeFromString<ChatCompletionChunk>(
            """{"id":"a","object":"chat.completion.chunk","created":1,"model":"m","new":[1],
               "choices":[{"index":0,"delta":{"content":"x"},"logprobs":null,"finish_reason":"stop"}]}""",
        )
        assertEquals("x", chunk.text)
        assertEquals(FinishReason.STOP, chunk.choices[0].finishReason)
    }
}

package dev.mlcc.openai

import com.openai.client.OpenAIClient
import com.openai.client.OpenAIClientImpl
import com.openai.core.ClientOptions
import com.openai.errors.BadRequestException
import com.openai.errors.NotFoundException
import com.openai.models.chat.completions.ChatCompletionCreateParams
import com.openai.models.completions.CompletionCreateParams
import dev.mlcc.Engine
import dev.mlcc.Mlcc
import dev.mlcc.ModelSource
import org.junit.jupiter.api.AfterAll
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.BeforeAll
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.Timeout
import org.junit.jupiter.api.condition.EnabledIfSystemProperty
import java.nio.file.Paths

/** OpenAI's own client, unmodified, against the demo model. */
@EnabledIfSystemProperty(named = "mlcc.demo", matches = ".+")
@Timeout(120)
class OpenAITest {
    private fun params(question: String) = ChatCompletionCreateParams.builder()
        .model(engine.info.model).addUserMessage(question).temperature(0.0)

    private val sum = params("What is 17 + 25?")

    @Test
    fun `it answers, whole and streamed`() {
        val whole = client.chat().completions().create(sum.build()).choices()[0].message().content().get()
        assertTrue("42" in whole, whole)
        val streamed = client.chat().completions().createStreaming(sum.build()).use { response ->
            val pieces = response.stream().flatMap { it.choices().stream() }
                .map { it.delta().content().orElse("") }
            pieces.reduce("", String::plus)
        }
        assertEquals(whole, streamed)
        val later = client.async().chat().completions().create(sum.build()).get()
        assertEquals(whole, later.choices()[0].message().content().get())
    }

    @Test
    fun `completions and models`() {
        val params = CompletionCreateParams.builder()
            .model(engine.info.model).prompt("one two").maxTokens(4).build()
        assertTrue(client.completions().create(params).usage().get().completionTokens() in 1..4)
        assertEquals(listOf(engine.info.model), client.models().list().data().map { it.id() })
    }

    @Test
    fun `a stream that is not read to its end is cancelled`() {
        val long = params("Count up from one.").maxCompletionTokens(400)
            .putAdditionalBodyProperty("ignore_eos", com.openai.core.JsonValue.from(true)).build()
        client.chat().completions().createStreaming(long).use { it.stream().findFirst() }
        assertTrue("42" in client.chat().completions().create(sum.build()).choices()[0].message().content().get())
    }

    @Test
    fun `refusals become the SDK's exceptions`() {
        val wrong = assertThrows(BadRequestException::class.java) {
            client.chat().completions().create(params("x").temperature(5.0).build())
        }
        assertEquals("temperature", wrong.param().get())
        assertThrows(NotFoundException::class.java) {
            client.chat().completions().create(params("x").model("gpt-9").build())
        }
    }

    companion object {
        private lateinit var engine: Engine
        private lateinit var client: OpenAIClient

        @BeforeAll
        @JvmStatic
        fun load() {
            val demo = ModelSource.Folder(Paths.get(System.getProperty("mlcc.demo")))
            engine = Mlcc.loadAsync(demo).get()
            val options = ClientOptions.builder().httpClient(MlccHttpClient(engine)).apiKey("none")
            client = OpenAIClientImpl(options.build())
        }

        @AfterAll
        @JvmStatic
        fun close() = engine.close()
    }
}

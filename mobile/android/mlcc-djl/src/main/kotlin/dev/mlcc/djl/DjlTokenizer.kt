package dev.mlcc.djl

import ai.djl.huggingface.tokenizers.HuggingFaceTokenizer
import dev.mlcc.ArtifactException
import dev.mlcc.Tokenizer
import dev.mlcc.TokenizerFactory
import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.boolean
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import java.nio.file.Files
import java.nio.file.Path

/**
 * Hugging Face's tokenizers through DJL: `EngineOptions(tokenizer = DjlTokenizer)`.
 *
 * The same Rust code as Python's package, so texts get the same ids (tests/e2e/mobile/test_kotlin.py).
 */
public class DjlTokenizer private constructor(
    private val tokenizer: HuggingFaceTokenizer,
    override val specialTokens: List<String>,
) : Tokenizer {
    override fun encode(text: String, special: Boolean): IntArray {
        val ids = tokenizer.encode(text, special, false).ids
        return IntArray(ids.size) { ids[it].toInt() }
    }

    override fun decode(ids: IntArray): String =
        tokenizer.decode(LongArray(ids.size) { ids[it].toLong() }, true)

    override fun close(): Unit = tokenizer.close()

    public companion object : TokenizerFactory {
        /** DJL's own defaults would cut a text after 512 tokens. */
        private val WHOLE = mapOf("truncation" to "false", "padding" to "false")

        /** Reads `tokenizer.json`. Throws ArtifactException if it is none. */
        override fun open(folder: Path): DjlTokenizer {
            val file = folder.resolve("tokenizer.json")
            return try {
                DjlTokenizer(HuggingFaceTokenizer.newInstance(file, WHOLE), specialTokens(file))
            } catch (error: Exception) {
                throw ArtifactException("$file cannot be read as a tokenizer: ${error.message}", cause = error)
            }
        }

        private fun specialTokens(file: Path): List<String> {
            val text = Files.readAllBytes(file).decodeToString()
            val added = Json.parseToJsonElement(text).jsonObject["added_tokens"] as? JsonArray
                ?: throw SerializationException("it lists no added_tokens")
            return added.map { it.jsonObject }
                .filter { it["special"]?.jsonPrimitive?.boolean == true }
                .map { it.getValue("content").jsonPrimitive.content }
        }
    }
}

/** [DjlTokenizer] as a service: the default of [dev.mlcc.EngineOptions]. */
public class DjlTokenizers : TokenizerFactory by DjlTokenizer

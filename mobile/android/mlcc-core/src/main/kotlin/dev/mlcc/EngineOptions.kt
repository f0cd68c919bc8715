package dev.mlcc

import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import java.nio.file.Path

/**
 * How a model is loaded. null: what the model and the memory allow. Java sets properties; Kotlin names
 * arguments.
 *
 * @property context tokens of the longest conversation, at most.
 * @property maxBatch requests that are answered at once, at most.
 * @property maxStepTokens tokens of prompts that are computed at once, at most: fewer keep answers
 * flowing while a long prompt is read.
 * @property maxQueue requests that may wait beyond those; more are refused with status 503.
 * @property threads null: all cores that the process may use.
 * @property device the number of the GPU; null: the best.
 * @property memoryBytes for weights, caches and workspace together; null: what the system has free.
 * @property parseSpecial control tokens count in messages, too (`<|im_end|>` ...); else they are text.
 * @property prefixCache what was computed for one prompt is used for others that begin alike.
 * @property speculate `lookup` or `lookup:12`: up to so many tokens (8) are guessed from text that came
 * before and checked at once, the answer is the same; `draft`: the model of [draft] guesses; null: none.
 * @property draft the folder of a smaller compiled model with the same tokenizer.
 * @property unloadInBackground [Engine.background] gives the model's memory back.
 * @property files where mlcc's own parts are.
 * @property tokenizer makes the tokenizer of the model in a folder; null: what the class path brings as
 * a service (`mlcc-djl` is one), or else Hugging Face's in Python.
 * @property onProgress hears how it goes on, in threads of mlcc's.
 */
public class EngineOptions(
    public var context: Int? = null,
    public var maxBatch: Int? = null,
    public var maxStepTokens: Int? = null,
    public var maxQueue: Int? = null,
    public var threads: Int? = null,
    public var device: Int? = null,
    public var memoryBytes: Long? = null,
    public var parseSpecial: Boolean = false,
    public var prefixCache: Boolean = true,
    public var speculate: String? = null,
    public var draft: Path? = null,
    public var unloadInBackground: Boolean = false,
    public var files: NativeFiles = NativeFiles(),
    public var tokenizer: TokenizerFactory? = null,
    public var onProgress: ProgressListener = ProgressListener { },
) {
    internal fun forModel(folder: Path) = CreateOptions(
        folder.toAbsolutePath().toString(), context, maxBatch, maxStepTokens, maxQueue, threads, device,
        memoryBytes, parseSpecial, prefixCache, speculate, draft?.toAbsolutePath()?.toString(),
        unloadInBackground,
    )
}

/** mlcc_create's options. */
@Serializable
internal class CreateOptions(
    val model: String,
    val context: Int?,
    @SerialName("max_batch") val maxBatch: Int?,
    @SerialName("max_step_tokens") val maxStepTokens: Int?,
    @SerialName("max_queue") val maxQueue: Int?,
    val threads: Int?,
    val device: Int?,
    @SerialName("memory_bytes") val memoryBytes: Long?,
    @SerialName("parse_special") val parseSpecial: Boolean,
    @SerialName("prefix_cache") val prefixCache: Boolean,
    val speculate: String?,
    val draft: String?,
    @SerialName("unload_in_background") val unloadInBackground: Boolean,
)

/** Hears how a download or a start goes on. */
public fun interface ProgressListener {
    /** Called with every new state, in threads of mlcc's, one call at a time. */
    public fun onProgress(progress: Progress)
}

/** How far something is. */
public sealed interface Progress {
    /** Bytes that are done. */
    public val done: Long

    /** Bytes in all. */
    public val total: Long

    /** A model is fetched; `done` counts what was here before, too. */
    public data class Download(override val done: Long, override val total: Long) : Progress

    /** Weights are read. */
    @Serializable
    public data class Load(override val done: Long, override val total: Long) : Progress
}

package dev.mlcc

import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import java.nio.file.Path

/**
 * Options for loading a model. null: the largest value that the model and the memory allow. Java sets
 * properties; Kotlin uses named arguments.
 *
 * @property context tokens of the longest conversation, at most.
 * @property maxBatch requests that are answered at once, at most.
 * @property maxStepTokens prefill budget of a step in tokens: a smaller one delays running answers less
 * while a long prompt is computed.
 * @property maxQueue requests that may wait; more are refused with status 503.
 * @property threads null: all cores that the process may use.
 * @property device the number of the GPU; null: the best.
 * @property memoryBytes for weights, caches and workspace together; null: what the system has free.
 * @property parseSpecial parse control tokens (`<|im_end|>` ...) in messages; else they are plain text.
 * @property prefixCache reuse the KV cache of earlier prompts with the same prefix.
 * @property speculate speculative decoding. `lookup` or `lookup:12`: up to so many draft tokens (8) from
 * matching earlier text; `draft`: draft tokens from the model of [draft]; null: off. Answers are equal.
 * @property draft the folder of a smaller compiled model with the same tokenizer.
 * @property unloadInBackground [Engine.background] unloads the model.
 * @property files locations of mlcc's native parts.
 * @property tokenizer creates the tokenizer of the model in a folder; null: the service on the class
 * path (for example `mlcc-djl`), else Hugging Face's in Python.
 * @property images decodes the images of requests to a model that sees; null: they are refused, unless
 * Python has Pillow. `MlccAndroid.load` sets Android's.
 * @property onProgress is called with the progress, on threads of mlcc's.
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
    public var images: ImageDecoder? = null,
) {
    internal fun forModel(folder: Path) = CreateOptions(
        folder.toAbsolutePath().toString(), context, maxBatch, maxStepTokens, maxQueue, threads, device,
        memoryBytes, parseSpecial, prefixCache, speculate, draft?.toAbsolutePath()?.toString(),
        unloadInBackground,
    )
}

/** The options of mlcc_create. */
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

/** Receives the progress of a download or a load. */
public fun interface ProgressListener {
    /** Called with each new state, on threads of mlcc's, one call at a time. */
    public fun onProgress(progress: Progress)
}

/** Progress of a download or a load. */
public sealed interface Progress {
    /** Bytes that are done. */
    public val done: Long

    /** Bytes in all. */
    public val total: Long

    /** A model is being downloaded; `done` includes chunks that were stored before. */
    public data class Download(override val done: Long, override val total: Long) : Progress

    /** Weights are being loaded. */
    @Serializable
    public data class Load(override val done: Long, override val total: Long) : Progress
}

package dev.mlcc

import java.nio.file.Path

/** Texts to ids and back, for where Python has no tokenizer of its own. Closed with the engine. */
public interface Tokenizer : AutoCloseable {
    /** Special tokens, as they are written. */
    public val specialTokens: List<String>

    /**
     * The ids of a text. Special tokens that are written in it count. [special]: with those that the
     * tokenizer adds around a text.
     */
    public fun encode(text: String, special: Boolean): IntArray

    /** The text of ids, without special tokens; what is no UTF-8 as U+FFFD. */
    public fun decode(ids: IntArray): String
}

/** Makes the tokenizer of the model in a folder. A service of `java.util.ServiceLoader`. */
public fun interface TokenizerFactory {
    /** Reads `tokenizer.json` there. */
    public fun open(folder: Path): Tokenizer
}

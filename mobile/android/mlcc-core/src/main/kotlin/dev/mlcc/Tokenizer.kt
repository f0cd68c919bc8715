package dev.mlcc

import java.nio.file.Path

/** Encodes and decodes text, where Python has no tokenizer package. Closed with the engine. */
public interface Tokenizer : AutoCloseable {
    /** The texts of the special tokens. */
    public val specialTokens: List<String>

    /**
     * The ids of a text. Special tokens in the text are recognised. [special]: add the special tokens
     * that the tokenizer puts around a text.
     */
    public fun encode(text: String, special: Boolean): IntArray

    /** The text of ids, without special tokens; invalid UTF-8 becomes U+FFFD. */
    public fun decode(ids: IntArray): String
}

/** Creates the tokenizer of the model in a folder. A service of `java.util.ServiceLoader`. */
public fun interface TokenizerFactory {
    /** Reads `tokenizer.json` there. */
    public fun open(folder: Path): Tokenizer
}

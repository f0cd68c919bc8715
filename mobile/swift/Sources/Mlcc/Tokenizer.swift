/// Encodes and decodes text, where Python has no tokenizer package. One thread calls it at a time.
public protocol Tokenizer: AnyObject, Sendable {
    /// The texts of the special tokens.
    var specialTokens: [String] { get }

    /// The ids of a text. Special tokens in the text are recognised. `special`: add the special
    /// tokens that the tokenizer puts around a text.
    func encode(_ text: String, special: Bool) throws -> [Int32]

    /// The text of ids, without special tokens; invalid UTF-8 becomes U+FFFD.
    func decode(_ ids: [Int32]) throws -> String
}

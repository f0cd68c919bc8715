import Foundation

/// Locations of mlcc's native parts. On Linux the defaults find what `mobile/c/build.py` wrote.
public struct NativeFiles: Sendable {
    /// The zip with mlcc's Python modules; nil: `mlcc.zip` beside the library. By default that of
    /// the package for iOS.
    public var zip: String?
    /// The folder with `lib/pythonX.Y`; nil: found from the path of libpython, on iOS `python` in the
    /// app. "": none, `pythonPath` has all.
    public var pythonHome: String?
    /// Additional entries of Python's module path, such as the folder with Hugging Face's
    /// `tokenizers`. By default those of the variable `MLCC_PYTHON_PATH`, separated by colons.
    public var pythonPath: [String]

    /// With its fields.
    public init(
        zip: String? = Self.packagedZip, pythonHome: String? = nil, pythonPath: [String] = Self.environmentPath
    ) {
        (self.zip, self.pythonHome, self.pythonPath) = (zip, pythonHome, pythonPath)
    }

    /// The zip that the package for iOS brings; elsewhere nil.
    public static var packagedZip: String? {
        #if MLCC_PACKAGED
            return Bundle.module.path(forResource: "mlcc", ofType: "zip")
        #else
            return nil
        #endif
    }

    /// The entries of `MLCC_PYTHON_PATH`.
    public static var environmentPath: [String] {
        let text = ProcessInfo.processInfo.environment["MLCC_PYTHON_PATH"] ?? ""
        return text.split(separator: ":").map(String.init)
    }
}

/// Options for loading a model. nil: the largest value that the model and the memory allow.
public struct EngineOptions: Sendable {
    /// Tokens of the longest conversation, at most.
    public var context: Int?
    /// Requests that are answered at once, at most.
    public var maxBatch: Int?
    /// Prefill budget of a step in tokens: a smaller one delays running answers less while a long
    /// prompt is computed.
    public var maxStepTokens: Int?
    /// Requests that may wait; more are refused with status 503.
    public var maxQueue: Int?
    /// nil: all cores that the process may use.
    public var threads: Int?
    /// The number of the GPU; nil: the best.
    public var device: Int?
    /// Bytes for weights, caches and workspace together; nil: the memory that the system has free.
    public var memoryBytes: Int?
    /// Parse control tokens (`<|im_end|>` ...) in messages; else they are plain text.
    public var parseSpecial = false
    /// Reuse the KV cache of earlier prompts with the same prefix.
    public var prefixCache = true
    /// Speculative decoding, with equal answers. `lookup:12`: at most 12 draft tokens from matching
    /// earlier text (`lookup`: 8); `draft`: draft tokens from the model of `draft`; nil: off.
    public var speculate: String?
    /// The folder of a smaller compiled model with the same tokenizer.
    public var draft: URL?
    /// ``Engine/background(_:)`` unloads the model.
    public var unloadInBackground = false
    /// Locations of mlcc's native parts.
    public var files = NativeFiles()
    /// Replaces Hugging Face's `tokenizers` in Python; it must be that of the model.
    public var tokenizer: (any Tokenizer)?
    /// Decodes the images of requests to a model that sees; nil: they are refused, unless Python has
    /// Pillow. By default that of Apple's systems, elsewhere nil.
    public var images: (any ImageDecoder)? = Self.systemImages
    /// Is called with the progress of a download and of the load, on threads of mlcc's.
    public var onProgress: @Sendable (LoadProgress) -> Void = { _ in }

    /// The defaults.
    public init() {}

    /// The system's decoder of images; nil: it has none.
    public static var systemImages: (any ImageDecoder)? {
        #if canImport(ImageIO)
            return AppleImageDecoder()
        #else
            return nil
        #endif
    }

    /// The JSON of `mlcc_create`.
    func json(model: URL) throws -> String {
        let options = CreateOptions(
            model: model.standardizedFileURL.path, context: context, max_batch: maxBatch,
            max_step_tokens: maxStepTokens, max_queue: maxQueue, threads: threads, device: device,
            memory_bytes: memoryBytes, parse_special: parseSpecial, prefix_cache: prefixCache,
            speculate: speculate, draft: draft?.standardizedFileURL.path,
            unload_in_background: unloadInBackground)
        return String(decoding: try JSON.encode(options), as: UTF8.self)
    }
}

/// The options of `mlcc_create`, by their names in JSON.
private struct CreateOptions: Encodable {
    let model: String
    let context, max_batch, max_step_tokens, max_queue, threads, device, memory_bytes: Int?
    let parse_special, prefix_cache: Bool
    let speculate, draft: String?
    let unload_in_background: Bool
}

/// LoadProgress of a download or of a load, in bytes.
public enum LoadProgress: Sendable, Hashable {
    /// A model is being downloaded; `done` includes chunks that were stored before.
    case download(done: Int, total: Int)
    /// Weights are being loaded.
    case load(done: Int, total: Int)

    /// Bytes that are done.
    public var done: Int {
        switch self { case .download(let done, _), .load(let done, _): done }
    }

    /// Bytes in all.
    public var total: Int {
        switch self { case .download(_, let total), .load(_, let total): total }
    }
}

import CMlcc
import Foundation

/// A loaded model.
public struct EngineInfo: Codable, Hashable, Sendable {
    /// Its name.
    public let model: String
    /// Tokens of the longest conversation.
    public let context: Int
    /// Requests that are answered at once.
    public let maxBatch: Int
    /// Notes for the user, for example which limit was reduced and why.
    public let notes: [String]?

    enum CodingKeys: String, CodingKey {
        case model, context, notes
        case maxBatch = "max_batch"
    }
}

/// What to release when memory is short. Each level includes the one before.
public enum TrimLevel: Int32, Sendable {
    /// Normal operation.
    case none
    /// Release the prefix cache.
    case cache
    /// Also refuse new requests, with status 503 and the code `low_memory`, until another trim.
    case refuse
}

/// A loaded model with OpenAI's API, in this process.
///
///     let engine = try await Engine.load(URL(fileURLWithPath: "dist/NAME-q4-cpu"))
///     let request = ChatCompletionRequest(messages: [Message(.user, "What is 17 + 25?")])
///     for try await chunk in engine.chat.completions.stream(request) { print(chunk.text) }
///
/// Any task may send requests. Several are answered at once; those beyond ``EngineInfo/maxBatch``
/// wait. The model is unloaded by ``close()``, or with the last reference to the engine.
public final class Engine: Transport {
    /// The name and limits of the model.
    public let info: EngineInfo
    private let native: NativeEngine
    private let isClosed = Locked(false)

    private init(info: EngineInfo, native: NativeEngine) {
        (self.info, self.native) = (info, native)
    }

    deinit {
        if !isClosed.withLock({ $0 }) { DispatchQueue.global().async { [native] in native.close() } }
    }

    /// Load a model, after downloading it if needed. Returns when it is ready; cancelling the task
    /// stops, and what was downloaded is kept.
    ///
    /// - Parameters:
    ///   - url: a folder that `mlcc compile` wrote, on this machine or on a web server.
    ///   - store: where a model of a web server is kept.
    /// - Throws: ``MlccError``: `artifact`, `capacity`, `device`, `download` or `setup`.
    public static func load(
        _ url: URL, options: EngineOptions = EngineOptions(), store: ModelStore = .standard
    ) async throws -> Engine {
        if url.isFileURL { return try await open(url, options) }
        return try await open(store.fetch(url, onProgress: options.onProgress), options)
    }

    private static func open(_ folder: URL, _ options: EngineOptions) async throws -> Engine {
        let json = try options.json(model: folder)
        let (states, state) = AsyncThrowingStream<EngineInfo, any Error>.makeStream()
        let onProgress = options.onProgress
        let (files, tokenizer, images) = (options.files, options.tokenizer, options.images)
        let native = try await offloaded {
            try NativeEngine.startPython(files)
            return try NativeEngine.create(options: json, tokenizer: tokenizer, images: images) { event in
                handle(event, state, onProgress)
            }
        }
        do {
            for try await info in states { return Engine(info: info, native: native) }
            throw CancellationError()
        } catch {
            try await offloaded { native.close() }
            throw error
        }
    }

    /// An event of the engine itself, while it loads.
    private static func handle(
        _ event: mlcc_event, _ state: AsyncThrowingStream<EngineInfo, any Error>.Continuation,
        _ onProgress: @Sendable (LoadProgress) -> Void
    ) {
        switch mlcc_event_kind(event.kind) {
        case MLCC_EVENT_PROGRESS:
            guard let counts = try? JSON.decode([String: Int].self, event.bytes) else { return }
            onProgress(.load(done: counts["done"] ?? 0, total: counts["total"] ?? 0))
        case MLCC_EVENT_READY:
            do {
                state.yield(try JSON.answer(EngineInfo.self, event.bytes))
            } catch {
                state.finish(throwing: error)
            }
        case MLCC_EVENT_FAILED:
            state.finish(throwing: MlccError.ofLibrary(event.status, event.bytes))
        default: break  // of a later version
        }
    }

    /// The API as HTTP requests, for any path of it.
    public func send(_ request: APIRequest) async throws -> APIResponse {
        let mailbox = Mailbox()
        try native.send(request, to: mailbox)
        let body = APIBody(mailbox)  // cancels the call if this throws
        let head = try await mailbox.head()
        return APIResponse(status: head.status, headers: head.headers, body: body)
    }

    /// The engine's counters: requests, tokens, pages of the cache. Waits for a step of the model.
    public func counters() async throws -> JSONValue {
        let stats = try await offloaded { [native] in try native.stats() }
        return try JSON.answer(JSONValue.self, stats)
    }

    /// Give back memory when the system is short of it; `.none` when it no longer is.
    public func trim(_ level: TrimLevel) { mlcc_trim(native.handle, level.rawValue) }

    /// The app moved to the background (`true`) or back. Has an effect only with
    /// ``EngineOptions/unloadInBackground``: requests are refused until the model is loaded again.
    public func background(_ isHidden: Bool) { mlcc_background(native.handle, isHidden ? 1 : 0) }

    /// Unload the model. Running requests end with ``MlccError/closed(message:code:)``. Idempotent.
    /// Waits for the step that runs.
    public func close() async {
        isClosed.withLock { $0 = true }
        try? await offloaded { [native] in native.close() }
    }
}

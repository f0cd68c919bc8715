import CMlcc
import Foundation

/// An engine of the C library.
struct NativeEngine: Sendable {
    let handle: mlcc_engine
    let calls: CallTable

    /// Starts Python in this process, unless it runs. Blocks for about a tenth of a second.
    static func startPython(_ files: NativeFiles) throws {
        let path = files.pythonPath.isEmpty ? nil : files.pythonPath.joined(separator: ":")
        try withCString(files.zip) { zip in
            try withCString(files.pythonHome) { home in
                try withCString(path) { path in
                    var python = mlcc_python()
                    python.size = UInt32(MemoryLayout<mlcc_python>.size)
                    python.abi = UInt32(MLCC_ABI_VERSION)
                    (python.zip, python.home, python.path) = (zip, home, path)
                    try checked { mlcc_start(&python, $0) }
                }
            }
        }
    }

    /// Begins to load a model. options: JSON of `mlcc_create`. onEvent: receives the events of the
    /// engine itself, on a thread of the library's.
    static func create(
        options: String, tokenizer: (any Tokenizer)?, images: (any ImageDecoder)?,
        onEvent: @escaping @Sendable (mlcc_event) -> Void
    ) throws -> NativeEngine {
        let context = HostContext(
            calls: CallTable(), tokenizer: tokenizer, images: images, onEvent: onEvent)
        let retained = Unmanaged.passRetained(context)  // until `released`
        var host = context.host(retained.toOpaque())
        var handle: mlcc_engine = 0
        do {
            try checked { mlcc_create(options, &host, &handle, $0) }
        } catch {
            retained.release()
            throw error
        }
        return NativeEngine(handle: handle, calls: context.calls)
    }

    /// Begins a call, whose answer `mailbox` receives.
    func send(_ request: APIRequest, to mailbox: Mailbox) throws {
        let headers = String(decoding: try JSON.encode(request.headers), as: UTF8.self)
        let call = try calls.begin(mailbox) {
            var call: mlcc_call = 0
            try request.body.withUnsafeBytes { body in
                try checked {
                    mlcc_request(
                        handle, request.method, request.path, headers, body.baseAddress, body.count,
                        &call, $0)
                }
            }
            return call
        }
        mailbox.onCancel { [handle] in mlcc_cancel(handle, call) }
    }

    /// The counters as JSON. Waits for the step that runs.
    func stats() throws -> Data {
        var text: UnsafeMutablePointer<CChar>?
        try checked { mlcc_stats(handle, &text, $0) }
        defer { mlcc_free(text) }
        return text.map { Data(bytes: $0, count: strlen($0)) } ?? Data()
    }

    /// Unloads the model. Waits for the step that runs.
    func close() { mlcc_close(handle) }
}

/// Throws the error of a function of the library that failed.
func checked(_ call: (UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>) -> mlcc_code) throws {
    var error: UnsafeMutablePointer<CChar>?
    let code = call(&error)
    defer { mlcc_free(error) }
    guard code != MLCC_OK else { return }
    let body = error.map { Data(bytes: $0, count: strlen($0)) } ?? Data()
    throw MlccError.ofLibrary(Int32(bitPattern: code.rawValue), body)
}

private func withCString<Result>(
    _ text: String?, _ body: (UnsafePointer<CChar>?) throws -> Result
) rethrows -> Result {
    if let text { try text.withCString(body) } else { try body(nil) }
}

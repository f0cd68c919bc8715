import CMlcc
import Foundation

/// An expected error: its message says what happened, why, and what to do next.
///
/// A cancelled task gets Swift's `CancellationError` instead.
public enum MlccError: Error, Sendable, Equatable {
    /// A request was refused, or its answer broke off. `status` is HTTP's: 400 for a request that
    /// can never be honoured, 503 for one that may be later, 500 for a failure on the way.
    case api(status: Int, error: ErrorObject)
    /// A compiled model that is damaged, incomplete, unsafe, or made for another machine or
    /// version.
    case artifact(message: String, code: String)
    /// Not enough memory or disk space, or an answer that was not read for too long.
    case capacity(message: String, code: String)
    /// The device failed, or lacks something that the model needs.
    case device(message: String, code: String)
    /// A file could not be fetched: no network, a refusal, or the connection broke off.
    case download(message: String, code: String)
    /// A ``RemoteServer`` could not be reached, or the connection broke off.
    case connection(message: String, code: String)
    /// A feature that is not available.
    case unsupported(message: String, code: String)
    /// The engine was closed before or while it answered; `Engine.load` starts another.
    case closed(message: String, code: String)
    /// mlcc's native parts are missing or do not match each other: see ``NativeFiles``.
    case setup(message: String, code: String)
    /// A bug in mlcc: please report it, with what was logged.
    case bug(message: String, code: String)

    /// What happened, why, and what to do next.
    public var message: String {
        switch self {
        case .api(_, let error): error.message
        case .artifact(let message, _), .capacity(let message, _), .device(let message, _),
            .download(let message, _), .connection(let message, _),
            .unsupported(let message, _), .closed(let message, _), .setup(let message, _), .bug(let message, _):
            message
        }
    }

    /// Stable, for programs: `context_length_exceeded`, `queue_full`, `low_memory`, ...
    public var code: String? {
        switch self {
        case .api(_, let error): error.code
        case .artifact(_, let code), .capacity(_, let code), .device(_, let code),
            .download(_, let code), .connection(_, let code),
            .unsupported(_, let code), .closed(_, let code), .setup(_, let code), .bug(_, let code):
            code
        }
    }
}

extension MlccError: LocalizedError, CustomStringConvertible {
    /// The message.
    public var errorDescription: String? { message }

    /// The message.
    public var description: String { message }
}

extension MlccError {
    static let engineClosed = MlccError.closed(
        message: "the engine was closed; Engine.load starts another", code: "closed")

    /// The error for a code of the library and the JSON beside it, which may be "".
    static func ofLibrary(_ code: Int32, _ body: Data) -> any Error {
        let error = try? JSON.decode(ErrorBody.self, body).error
        let message = error?.message ?? "mlcc's library answered with code \(code) and no message"
        func name(_ other: String) -> String { error?.code ?? other }
        return switch mlcc_code(UInt32(bitPattern: code)) {
        case MLCC_CANCELLED: CancellationError()
        case MLCC_CLOSED: error == nil ? engineClosed : closed(message: message, code: name("closed"))
        case MLCC_STALLED, MLCC_NO_MEMORY: capacity(message: message, code: name("capacity"))
        case MLCC_BAD_ABI, MLCC_NO_CALLBACK, MLCC_NO_PYTHON, MLCC_OTHER_PYTHON, MLCC_BAD_RUNTIME:
            setup(message: message, code: name("setup"))
        case MLCC_BAD_MODEL: artifact(message: message, code: name("artifact"))
        case MLCC_DEVICE_FAILED: device(message: message, code: name("device_error"))
        case MLCC_UNSUPPORTED: unsupported(message: message, code: name("unsupported"))
        default: bug(message: message, code: name("bug"))
        }
    }

    /// The error for an answer whose status is not 200.
    static func ofAnswer(_ status: Int, _ body: Data) -> MlccError {
        if let error = try? JSON.decode(ErrorBody.self, body).error {
            return .api(status: status, error: error)
        }
        let text = "the answer was \(status): \(String(decoding: body.prefix(300), as: UTF8.self))"
        return .api(status: status, error: ErrorObject(message: text, type: "server_error"))
    }
}

import Foundation

/// The answer of one call, between the thread that delivers it and the task that reads it.
///
/// Pieces of the body that are not read yet are joined. So a slow reader holds at most one piece,
/// and of that no more than `limit` bytes: beyond, the call is cancelled and the reader gets an
/// error.
final class Mailbox: Sendable {
    struct Head: Sendable {
        let status: Int
        let headers: [String: String]
    }

    private struct State {
        var head: Head?
        var body = Data()
        var end: Result<Void, any Error>?
        var waiters: [CheckedContinuation<Void, Never>] = []
        var cancel: (@Sendable () -> Void)?
        var piecesAfterEnd = 0
    }

    private let state = Locked(State())
    private let limit: Int

    init(limit: Int = 16 << 20) { self.limit = limit }

    // ---- The thread that delivers

    /// The function that stops the call; it runs once at most, and not after the end.
    func onCancel(_ cancel: @escaping @Sendable () -> Void) {
        let isOver = state.withLock { state in
            if state.end == nil { state.cancel = cancel }
            return state.end != nil
        }
        if isOver { cancel() }
    }

    func put(_ head: Head) { change { if $0.end == nil { $0.head = head } } }

    func put(_ piece: Data) {
        let isFull = state.withLock { state in
            if state.end == nil { state.body.append(piece) } else { state.piecesAfterEnd += 1 }
            return state.body.count > limit
        }
        if isFull { end(.failure(stalled), cancels: true) }
        change { _ in }
    }

    func finish(_ result: Result<Void, any Error>) { end(result, cancels: false) }

    // ---- The task that reads

    /// Stop the call. The reader gets `CancellationError`, unless the answer is complete.
    func cancel() { end(.failure(CancellationError()), cancels: true) }

    func head() async throws -> Head {
        while true {
            let found = try state.withLock { state -> Head? in
                if state.head == nil { try state.end?.get() }
                return state.head
            }
            if let found { return found }
            await changed { $0.head != nil }
        }
    }

    /// The body that has arrived since the last call; nil at its end.
    func next() async throws -> Data? {
        while true {
            let (piece, isOver) = try state.withLock { state -> (Data, Bool) in
                let piece = state.body
                state.body = Data()
                if piece.isEmpty { try state.end?.get() }
                return (piece, state.end != nil)
            }
            if !piece.isEmpty { return piece }
            if isOver { return nil }
            await changed { !$0.body.isEmpty }
        }
    }

    // ---- Both

    /// Whether the end has arrived.
    var isOver: Bool { state.withLock { $0.end != nil } }

    /// Pieces that came after a cancel and were dropped.
    var piecesAfterEnd: Int { state.withLock { $0.piecesAfterEnd } }

    private var stalled: MlccError {
        .capacity(
            message: "the answer was not read, and \(limit) bytes of it were waiting; read faster",
            code: "stalled")
    }

    private func end(_ result: Result<Void, any Error>, cancels: Bool) {
        let cancel = state.withLock { state -> (@Sendable () -> Void)? in
            guard state.end == nil else { return nil }
            state.end = result
            if cancels { state.body = Data() }
            defer { state.cancel = nil }
            return cancels ? state.cancel : nil
        }
        cancel?()
        change { _ in }
    }

    private func change(_ body: (inout State) -> Void) {
        let waiters = state.withLock { state in
            body(&state)
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in waiters { waiter.resume() }
    }

    /// Waits until `isThere` or the end. A cancelled task cancels the call.
    private func changed(_ isThere: (borrowing State) -> Bool) async {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isReady = state.withLock { state in
                    if state.end != nil || isThere(state) { return true }
                    state.waiters.append(continuation)
                    return false
                }
                if isReady { continuation.resume() }
            }
        } onCancel: {
            cancel()
        }
    }
}

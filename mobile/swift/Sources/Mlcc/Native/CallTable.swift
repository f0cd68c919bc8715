import CMlcc
import Foundation

/// The calls of an engine that have not ended, with the mailboxes of their readers.
final class CallTable: Sendable {
    private struct State {
        var mailboxes: [mlcc_call: Mailbox] = [:]
        var isClosed = false
    }

    private let state = Locked(State())

    /// Begins a call with `start`. No event of it is delivered before it is in the table, because
    /// both hold the lock.
    func begin(_ mailbox: Mailbox, start: () throws -> mlcc_call) throws -> mlcc_call {
        try state.withLock { state in
            if state.isClosed { throw MlccError.engineClosed }
            let call = try start()
            state.mailboxes[call] = mailbox
            return call
        }
    }

    /// Passes an event to its reader. Events of a call that is no longer in the table are dropped.
    func deliver(_ event: mlcc_event) {
        let isEnd = event.kind == MLCC_EVENT_END.rawValue
        let found = state.withLock { state in
            isEnd ? state.mailboxes.removeValue(forKey: event.call) : state.mailboxes[event.call]
        }
        guard let mailbox = found else { return }
        switch mlcc_event_kind(event.kind) {
        case MLCC_EVENT_HEAD:
            let headers = (try? JSON.decode([String: String].self, event.bytes)) ?? [:]
            mailbox.put(Mailbox.Head(status: Int(event.status), headers: headers))
        case MLCC_EVENT_BODY: mailbox.put(event.bytes)
        case MLCC_EVENT_END: mailbox.finish(event.result)
        default: break  // of a later version
        }
    }

    /// No event follows: every call ends with the error of a closed engine.
    func close() {
        let left = state.withLock { state in
            state.isClosed = true
            defer { state.mailboxes = [:] }
            return Array(state.mailboxes.values)
        }
        for mailbox in left { mailbox.finish(.failure(MlccError.engineClosed)) }
    }

    /// Calls that have not ended.
    var count: Int { state.withLock { $0.mailboxes.count } }
}

extension mlcc_event {
    /// A copy of the data.
    var bytes: Data { Data(bytes: data, count: size) }

    /// How a call ended.
    fileprivate var result: Result<Void, any Error> {
        status == MLCC_OK.rawValue ? .success(()) : .failure(MlccError.ofLibrary(status, bytes))
    }
}

import Foundation

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// The connection was lost or never made: another try may succeed.
struct ConnectionError: Error {
    let message: String
}

/// HTTP by URLSession, with bodies that are read as they arrive.
final class HTTPClient: Sendable {
    /// For all transports and stores of the process.
    static let shared = HTTPClient()

    private let delegate = Delegate()
    private let session: URLSession

    init() {
        let configuration = URLSessionConfiguration.default
        configuration.requestCachePolicy = .reloadIgnoringLocalCacheData
        configuration.urlCache = nil
        configuration.httpMaximumConnectionsPerHost = 16
        session = URLSession(configuration: configuration, delegate: delegate, delegateQueue: nil)
    }

    /// Sends a request. The mailbox gets its answer, or a `ConnectionError`; cancelling it ends the
    /// connection. The body waits in memory until it is read: on Linux a task of URLSession that is
    /// suspended delivers bytes twice.
    func send(_ request: URLRequest) -> Mailbox {
        let mailbox = Mailbox(limit: .max)
        let task = session.dataTask(with: request)
        delegate.add(task, mailbox)
        mailbox.onCancel { task.cancel() }
        task.resume()
        return mailbox
    }

    /// Passes the session's events to the mailbox of their task.
    private final class Delegate: NSObject, URLSessionDataDelegate, Sendable {
        private let mailboxes = Locked<[Int: Mailbox]>([:])

        func add(_ task: URLSessionTask, _ mailbox: Mailbox) {
            mailboxes.withLock { $0[task.taskIdentifier] = mailbox }
        }

        private func mailbox(_ task: URLSessionTask) -> Mailbox? {
            mailboxes.withLock { $0[task.taskIdentifier] }
        }

        func urlSession(
            _: URLSession, dataTask: URLSessionDataTask, didReceive response: URLResponse,
            completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
        ) {
            let answer = response as? HTTPURLResponse
            var headers: [String: String] = [:]
            for (name, value) in answer?.allHeaderFields ?? [:] {
                headers["\(name)".lowercased()] = "\(value)"
            }
            mailbox(dataTask)?.put(Mailbox.Head(status: answer?.statusCode ?? 0, headers: headers))
            completionHandler(.allow)
        }

        func urlSession(_: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
            mailbox(dataTask)?.put(data)
        }

        func urlSession(
            _: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?
        ) {
            let found = mailboxes.withLock { $0.removeValue(forKey: task.taskIdentifier) }
            if let error {
                found?.finish(.failure(ConnectionError(message: error.localizedDescription)))
            } else {
                found?.finish(.success(()))
            }
        }
    }
}

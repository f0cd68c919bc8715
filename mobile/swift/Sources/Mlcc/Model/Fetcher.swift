import Foundation

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// Requests for files, with retries.
struct Fetcher: Sendable {
    /// Seconds before each retry.
    var delays = [0.25, 0.75, 2, 5, 8]
    /// Seconds without a byte, after which a connection is lost.
    var idleSeconds = 30.0
    private static let retried: Set<Int> = [408, 425, 429, 500, 502, 503, 504]

    /// A response with a file, or a range of it.
    struct Response {
        /// The place of the first byte in the file.
        let start: Int
        /// It is the requested range, not the whole file, which a server may send instead.
        let isRanged: Bool
        var body: BodyReader
    }

    /// Requests a file or a range of it; `use` reads the response. Lost connections are retried;
    /// after the last retry: `MlccError.download`. path: for errors.
    func get<Result>(
        _ url: URL, path: String, range: Range<Int>? = nil,
        use: (inout Response) async throws -> Result
    ) async throws -> Result {
        for (attempt, delay) in (delays.map(Optional.some) + [nil]).enumerated() {
            do {
                var response = try await open(url, path, range)
                return try await use(&response)
            } catch let error as ConnectionError {
                try Task.checkCancellation()
                guard let delay else { throw exhausted(path, attempt + 1, error) }
                try await Task.sleep(nanoseconds: UInt64(delay * 1e9))
            }
        }
        fatalError("the last try returns or throws")
    }

    private func open(_ url: URL, _ path: String, _ range: Range<Int>?) async throws -> Response {
        var request = URLRequest(url: url, timeoutInterval: idleSeconds)
        request.setValue("identity", forHTTPHeaderField: "accept-encoding")
        if let range {
            request.setValue(
                "bytes=\(range.lowerBound)-\(range.upperBound - 1)", forHTTPHeaderField: "range")
        }
        let mailbox = HTTPClient.shared.send(request)
        let body = APIBody(mailbox)
        let head = try await mailbox.head()
        try check(head.status, path)
        let start = range?.lowerBound ?? 0
        let isRanged = head.status == 206
        let found = head.headers["content-range"] ?? ""
        if isRanged && !found.hasPrefix("bytes \(start)-") {
            throw ConnectionError(message: "the server sent another range than requested: '\(found)'")
        }
        return Response(start: isRanged ? start : 0, isRanged: isRanged, body: BodyReader(body))
    }

    private func check(_ status: Int, _ path: String) throws {
        switch status {
        case 200, 206: return
        case let status where Self.retried.contains(status):
            throw ConnectionError(message: "the server answered \(status)")
        case 404, 410:
            throw download(
                "the server has no \(path) (\(status)); check the address of the model's folder")
        case 416:
            throw artifact(
                "\(path) on the server is shorter than its manifest says; copy the model there again")
        default:
            throw download(
                "the server refused \(path) (\(status)); check the address and who may read it")
        }
    }

    private func exhausted(_ path: String, _ tries: Int, _ error: ConnectionError) -> MlccError {
        download(
            "\(path) could not be downloaded in \(tries) tries (\(error.message)); check the "
                + "connection, then load the model again: what has arrived is kept")
    }
}

/// Reads a body in pieces of chosen sizes.
struct BodyReader {
    private let body: APIBody
    private var iterator: APIBody.Iterator
    private var piece = Data()
    private var at = 0

    init(_ body: APIBody) {
        self.body = body
        iterator = body.makeAsyncIterator()
    }

    /// At most `count` bytes; nil at the end.
    mutating func next(_ count: Int) async throws -> Data? {
        while at == piece.count {
            guard let more = try await iterator.next() else { return nil }
            (piece, at) = (more, 0)
        }
        let end = min(at + count, piece.count)
        defer { at = end }
        return piece.subdata(in: at..<end)
    }

    /// Passes the next `count` bytes on. Throws `ConnectionError` if there are fewer.
    mutating func read(_ count: Int, _ use: (Data) throws -> Void) async throws {
        var left = count
        while left > 0 {
            try Task.checkCancellation()
            guard let data = try await next(left) else {
                throw ConnectionError(message: "the server sent \(left) bytes too few")
            }
            try use(data)
            left -= data.count
        }
    }

    /// All of it. Throws `MlccError.download` if there are more than `limit` bytes. path: for
    /// errors.
    mutating func whole(limit: Int, path: String) async throws -> Data {
        var data = Data()
        while let more = try await next(limit) {
            data.append(more)
            if data.count > limit {
                throw download("\(path) is larger than \(limit >> 20) MiB; check the address")
            }
        }
        return data
    }
}

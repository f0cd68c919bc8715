import Foundation

/// The chunks of a streamed answer. Each loop over it sends its own request.
public struct ChunkStream<Chunk: Decodable & Sendable>: AsyncSequence, Sendable {
    let transport: any Transport
    let path: String
    let request: any Encodable & Sendable

    /// Sends the request with the first read.
    public func makeAsyncIterator() -> Iterator { Iterator(stream: self) }

    /// Reads the chunks. Dropping it cancels the request.
    public struct Iterator: AsyncIteratorProtocol {
        let stream: ChunkStream
        private var body: APIBody.Iterator?
        private var lines = EventLines()

        init(stream: ChunkStream) { self.stream = stream }

        /// The next chunk; nil at the end. Throws ``MlccError`` or `CancellationError`.
        public mutating func next() async throws -> Chunk? {
            if body == nil { body = try await stream.send().body.makeAsyncIterator() }
            while true {
                if let line = lines.next() { return try Self.chunk(line) }
                guard let piece = try await body?.next() else { return nil }
                lines.add(piece)
            }
        }

        /// A chunk. JSON of another shape is the error with which the stream ended.
        private static func chunk(_ line: Data) throws -> Chunk {
            do {
                return try JSON.decode(Chunk.self, line)
            } catch {
                if let found = try? JSON.decode(ErrorBody.self, line).error {
                    throw MlccError.api(status: 500, error: found)
                }
                if let found = try? JSON.decode(ErrorObject.self, line) {  // of /v1/responses
                    throw MlccError.api(status: 500, error: found)
                }
                throw MlccError.bug(
                    message: "a chunk is no \(Chunk.self): \(String(decoding: line, as: UTF8.self))",
                    code: "bug")
            }
        }
    }

    private func send() async throws -> APIResponse {
        let response = try await transport.send(APIRequest("POST", path, body: JSON.encode(request)))
        if response.status == 200 { return response }
        throw MlccError.ofAnswer(response.status, try await response.body.whole())
    }

    /// The same as Swift's own type. Chunks wait in the request's answer, not in the stream.
    func asAsyncThrowingStream() -> AsyncThrowingStream<Chunk, any Error> {
        let reader = Reader(makeAsyncIterator())
        return AsyncThrowingStream { try await reader.next() }
    }

    /// An iterator that one task at a time uses.
    private final class Reader: @unchecked Sendable {
        var iterator: Iterator
        init(_ iterator: Iterator) { self.iterator = iterator }
        func next() async throws -> Chunk? { try await iterator.next() }
    }
}

/// The `data:` lines of server-sent events, from pieces that are cut anywhere.
struct EventLines {
    private var bytes: [UInt8] = []
    private var start = 0
    private static let prefix = Array("data:".utf8)
    private static let done = Array("[DONE]".utf8)

    mutating func add(_ piece: Data) {
        bytes.removeFirst(start)
        bytes.append(contentsOf: piece)
        start = 0
    }

    /// The data of the next complete line, without `[DONE]`; nil: more is needed.
    mutating func next() -> Data? {
        while let end = bytes[start...].firstIndex(of: UInt8(ascii: "\n")) {
            var line = bytes[start..<end]
            start = end + 1
            if line.last == UInt8(ascii: "\r") { line = line.dropLast() }
            guard line.starts(with: Self.prefix) else { continue }
            line = line.dropFirst(Self.prefix.count)
            if line.first == UInt8(ascii: " ") { line = line.dropFirst() }
            if !line.elementsEqual(Self.done) { return Data(line) }
        }
        return nil
    }
}

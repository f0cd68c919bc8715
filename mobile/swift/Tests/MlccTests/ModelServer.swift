import Foundation

#if canImport(Glibc)
import Glibc
#endif

@testable import Mlcc

/// A web server with the files of a model, with configurable faults.
final class ModelServer: @unchecked Sendable {
    struct Faults: Sendable {
        /// Whether ranges are given.
        var ranges = true
        /// The status to refuse a path with.
        var refuse: @Sendable (String) -> Int? = { _ in nil }
        /// How many of the bytes are sent before the connection breaks.
        var cut: @Sendable (String, Int) -> Int = { _, size in size }
    }

    let faults = Locked(Faults())
    let files: Locked<[String: Data]>
    /// The paths of all requests.
    let asked = Locked<[String]>([])
    let port: UInt16
    private let socket: Int32

    var url: URL { URL(string: "http://127.0.0.1:\(port)/model/")! }

    init(_ files: [String: Data]) {
        self.files = Locked(files)
        socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let descriptor = socket
        withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                precondition(bind(descriptor, pointer, size) == 0)
                precondition(listen(descriptor, 64) == 0)
                precondition(getsockname(descriptor, pointer, &size) == 0)
            }
        }
        port = UInt16(bigEndian: address.sin_port)
        Thread.detachNewThread { [self] in serve() }
    }

    func close() { shutdown(socket, Int32(SHUT_RDWR)) }

    private func serve() {
        while true {
            let connection = accept(socket, nil, nil)
            guard connection >= 0 else { break }
            Thread.detachNewThread { [self] in
                answer(connection)
                Glibc.close(connection)
            }
        }
        Glibc.close(socket)
    }

    private func answer(_ connection: Int32) {
        var head = ""
        var byte: UInt8 = 0
        while !head.hasSuffix("\r\n\r\n") {
            guard recv(connection, &byte, 1, 0) == 1 else { return }
            head.append(Character(UnicodeScalar(byte)))
        }
        let lines = head.components(separatedBy: "\r\n")
        let target = lines[0].split(separator: " ")[1].dropFirst("/model/".count)
        let path = String(target.prefix { $0 != "?" }).removingPercentEncoding!
        asked.withLock { $0.append(path) }
        let faults = faults.withLock { $0 }
        let bytes = files.withLock { $0[path] }
        if let status = bytes == nil ? 404 : faults.refuse(path) {
            return send(connection, "HTTP/1.1 \(status) No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        }
        let range = lines.first { $0.lowercased().hasPrefix("range:") }
        let part = range.flatMap { faults.ranges ? bounds($0) : nil }
        let data = part.map { bytes![$0] } ?? bytes!
        let extra = part.map { "content-range: bytes \($0.lowerBound)-\($0.upperBound - 1)/\(bytes!.count)\r\n" }
        send(
            connection,
            "HTTP/1.1 \(part == nil ? 200 : 206) OK\r\ncontent-length: \(data.count)\r\n"
                + "\(extra ?? "")connection: close\r\n\r\n")
        send(connection, Data(data.prefix(faults.cut(path, data.count))))
    }

    private func bounds(_ line: String) -> Range<Int> {
        let numbers = line.split { !$0.isNumber }.compactMap { Int($0) }
        return numbers[0]..<numbers[1] + 1
    }

    private func send(_ connection: Int32, _ text: String) { send(connection, Data(text.utf8)) }

    private func send(_ connection: Int32, _ data: Data) {
        data.withUnsafeBytes { bytes in
            var at = 0
            while at < bytes.count {
                let flags = Int32(MSG_NOSIGNAL)
                let sent = Glibc.send(connection, bytes.baseAddress! + at, bytes.count - at, flags)
                guard sent > 0 else { return }
                at += sent
            }
        }
    }
}

/// Chunks of the tests: small, because code without optimization hashes slowly.
let testChunk = 64 << 10

/// `mlcc.json` of files, sealed. entry: what it lists of a file; by default the truth.
func manifest(
    _ files: [String: Data], entry: (String, Data) -> String = { manifestEntry($0, $1) }
) -> Data {
    let entries = files.map { entry($0.key, $0.value) }.joined(separator: ",")
    let zeros = String(repeating: "0", count: 64)
    let text = """
        {"schema_version": 4, "model": {"name": "m"}, "files": [\(entries)], "checksum": "\(zeros)"}

        """
    return Data(text.replacingOccurrences(of: zeros, with: SHA256.hex(Data(text.utf8))).utf8)
}

func manifestEntry(_ path: String, _ data: Data, bytes: Int? = nil) -> String {
    let chunks = stride(from: 0, to: data.count, by: testChunk).map { start in
        "\"\(SHA256.hex(data[start..<min(start + testChunk, data.count)]))\""
    }
    return """
        {"path": "\(path)", "bytes": \(bytes ?? data.count), "chunks": [\(chunks.joined(separator: ","))]}
        """
}
